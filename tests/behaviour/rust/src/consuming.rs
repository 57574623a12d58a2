// SPDX-License-Identifier: Apache-2.0

use crate::driver::{
    cannot_express, decoded_id, encoded, encoded_id, milliseconds, refuse, schema, text, Answer, Client, Driver, Failure,
};
use crate::producing::Producer;
use futures::{Stream, StreamExt};
use pulsar::consumer::{DeadLetterPolicy, InitialPosition, Message};
use pulsar::{ConsumerOptions, SubType, TokioExecutor};
use regex::Regex;
use serde_json::{json, Value};
use std::time::Duration;
use tokio::sync::Mutex;

type Bytes = Vec<u8>;
type Consumer = Mutex<pulsar::Consumer<Bytes, TokioExecutor>>;
type Reader = Mutex<pulsar::reader::Reader<Bytes, TokioExecutor>>;

impl Driver {
    pub async fn consumer(&self, request: &Value) -> Answer {
        refuse(request, &["ranges", "relaxed_order", "retry", "dead_letter_subscription"])?;
        let queue_size = request["queue_size"].as_u64().unwrap_or_default() as u32;
        if queue_size == 0 {
            return cannot_express("a consumer without a queue");
        }
        let options = ConsumerOptions {
            priority_level: request["priority"].as_i64().map(|level| level as i32),
            initial_position: match text(request, "initial_position") {
                Some("Earliest") => InitialPosition::Earliest,
                _ => InitialPosition::Latest,
            },
            read_compacted: request["compacted"].as_bool(),
            receiver_queue_size: Some(queue_size),
            schema: schema(request)?,
            ..Default::default()
        };
        let client = self.object::<Client>(request, "client")?;
        let mut builder = client
            .consumer()
            .with_subscription(text(request, "subscription").unwrap_or_default())
            .with_subscription_type(subscription_type(request))
            .with_options(options)
            .with_batch_size(queue_size)
            .with_unacked_message_resend_delay(milliseconds(request, "ack_timeout_ms"));
        if let Some(name) = text(request, "name") {
            builder = builder.with_consumer_name(name);
        }
        if let Some(pattern) = text(request, "pattern") {
            if request["looks"] != true {
                return cannot_express("a watch of topics");
            }
            let path = pattern.split("://").last().unwrap_or_default();
            let namespace: Vec<&str> = path.splitn(3, '/').take(2).collect();
            builder = builder
                .with_lookup_namespace(namespace.join("/"))
                .with_topic_regex(Regex::new(pattern)?)
                .with_topic_refresh(Duration::from_secs(1));
        } else {
            builder = builder.with_topics(request["topics"].as_array().into_iter().flatten().filter_map(Value::as_str));
        }
        if let Some(count) = request["max_redeliver_count"].as_u64() {
            let Some(topic) = text(request, "dead_letter_topic") else {
                return cannot_express("a dead letter topic without a name");
            };
            builder = builder.with_dead_letter_policy(DeadLetterPolicy {
                max_redeliver_count: count as usize,
                dead_letter_topic: topic.into(),
            });
        }
        Ok(json!(self.kept::<Consumer>(Mutex::new(builder.build().await?))))
    }

    pub async fn receive(&self, request: &Value) -> Answer {
        let consumer = self.object::<Consumer>(request, "consumer")?;
        let mut own = consumer.lock().await;
        self.next(&mut *own, request).await
    }

    pub async fn acknowledge(&self, request: &Value) -> Answer {
        let consumer = self.object::<Consumer>(request, "consumer")?;
        let message = self.object::<Message<Bytes>>(request, "message")?;
        let mut own = consumer.lock().await;
        match text(request, "op") {
            Some("ack") => own.ack(&message).await?,
            Some("ack_cumulative") => own.cumulative_ack(&message).await?,
            Some("nack_twice") => {
                own.nack(&message).await?;
                own.nack(&message).await?
            }
            _ => own.nack(&message).await?,
        }
        Ok(Value::Null)
    }

    pub async fn unsubscribe(&self, request: &Value) -> Answer {
        refuse(request, &["force"])?;
        self.object::<Consumer>(request, "consumer")?.lock().await.unsubscribe().await?;
        Ok(Value::Null)
    }

    pub async fn last_message_id(&self, request: &Value) -> Answer {
        let ids = self.object::<Consumer>(request, "consumer")?.lock().await.get_last_message_id().await?;
        Ok(encoded_id(&ids[0]))
    }

    /// A version of the schema of a topic, as the broker gives it out.
    pub async fn schema(&self, request: &Value) -> Answer {
        let consumer = self.object::<Consumer>(request, "consumer")?;
        let version = request["version"].as_u64().map(|number| number.to_be_bytes().to_vec());
        let topic = text(request, "topic").unwrap_or_default();
        let found = consumer.lock().await.get_schema(topic, version).await?;
        match found {
            Some(found) => {
                let properties: serde_json::Map<String, Value> =
                    found.properties.iter().map(|each| (each.key.clone(), json!(each.value))).collect();
                Ok(json!({"type": found.r#type, "data": encoded(&found.schema_data), "properties": properties}))
            }
            None => Err(Failure::from("there is no such schema")),
        }
    }

    pub async fn reader(&self, request: &Value) -> Answer {
        refuse(request, &["inclusive", "rollback_s"])?;
        let start = text(request, "start").unwrap_or_default();
        let options = ConsumerOptions {
            start_message_id: Some(decoded_id(start)?),
            initial_position: match start {
                "earliest" => InitialPosition::Earliest,
                _ => InitialPosition::Latest,
            },
            durable: Some(false),
            read_compacted: request["compacted"].as_bool(),
            schema: schema(request)?,
            ..Default::default()
        };
        let client = self.object::<Client>(request, "client")?;
        let builder = client.reader().with_topic(text(request, "topic").unwrap_or_default()).with_options(options);
        Ok(json!(self.kept::<Reader>(Mutex::new(builder.into_reader().await?))))
    }

    pub async fn read(&self, request: &Value) -> Answer {
        let reader = self.object::<Reader>(request, "reader")?;
        let mut reader = reader.lock().await;
        self.next(&mut *reader, request).await
    }

    /// null when nothing has come in time.
    async fn next<S>(&self, source: &mut S, request: &Value) -> Answer
    where
        S: Stream<Item = Result<Message<Bytes>, pulsar::Error>> + Unpin,
    {
        let patience = milliseconds(request, "timeout_ms").unwrap_or(Duration::MAX);
        match tokio::time::timeout(patience, source.next()).await {
            Ok(Some(message)) => Ok(self.seen(message?)),
            Ok(None) => Err(Failure::from("the consumer has ended")),
            Err(_) => Ok(Value::Null),
        }
    }

    /// A message as the application sees it. It is not told how often the message was delivered.
    fn seen(&self, message: Message<Bytes>) -> Value {
        let metadata = message.metadata();
        let properties: serde_json::Map<String, Value> =
            metadata.properties.iter().map(|each| (each.key.clone(), json!(each.value))).collect();
        let ordering_key = metadata.ordering_key.as_ref().map(|key| String::from_utf8_lossy(key));
        let mut seen = json!({
            "message_id": encoded_id(message.message_id()),
            "value": encoded(&message.payload.data),
            "data": encoded(&message.payload.data),
            "schema_version": encoded(metadata.schema_version.as_deref().unwrap_or_default()),
            "key": message.key(),
            "ordering_key": ordering_key,
            "properties": properties,
            "publish_time_ms": metadata.publish_time,
            "event_time_ms": metadata.event_time.unwrap_or_default() as i64,
            "topic": message.topic,
            "producer_name": metadata.producer_name,
        });
        seen["object"] = json!(self.kept(message));
        seen
    }

    pub async fn close(&self, request: &Value) -> Answer {
        for number in request["objects"].as_array().into_iter().flatten().filter_map(Value::as_u64) {
            let Some(object) = self.removed(number) else { continue };
            if let Some(producer) = object.downcast_ref::<Producer>() {
                producer.lock().await.close().await?;
            } else if let Some(consumer) = object.downcast_ref::<Consumer>() {
                // One whose queue is full does nothing until somebody receives. It ends with its object.
                let mut own = consumer.lock().await;
                tokio::time::timeout(Duration::from_secs(1), own.close()).await.unwrap_or(Ok(()))?;
            }
        }
        Ok(Value::Null)
    }
}

fn subscription_type(request: &Value) -> SubType {
    match text(request, "type") {
        Some("Failover") => SubType::Failover,
        Some("Shared") => SubType::Shared,
        Some("Key_Shared") => SubType::KeyShared,
        _ => SubType::Exclusive,
    }
}
