// SPDX-License-Identifier: Apache-2.0

use crate::driver::{
    cannot_express, decoded, encoded_id, milliseconds, refuse, schema, text, Answer, Client, Driver, Failure,
};
use pulsar::compression::Compression;
use pulsar::producer::Message;
use pulsar::proto::ProducerAccessMode;
use pulsar::routing_policy::RoutingPolicy;
use pulsar::{CommandSendReceipt, ProducerOptions, TokioExecutor};
use serde_json::{json, Value};
use std::time::{Duration, SystemTime};
use tokio::sync::Mutex;

pub type Producer = Mutex<pulsar::Producer<TokioExecutor>>;

impl Driver {
    pub async fn producer(&self, request: &Value) -> Answer {
        refuse(request, &["batching_by_key", "chunking", "hashing_scheme"])?;
        let access_mode = match text(request, "access_mode") {
            Some("Exclusive") => ProducerAccessMode::Exclusive,
            Some("WaitForExclusive") => ProducerAccessMode::WaitForExclusive,
            Some("ExclusiveWithFencing") => ProducerAccessMode::ExclusiveWithFencing,
            _ => ProducerAccessMode::Shared,
        };
        let mut options = ProducerOptions {
            access_mode: Some(access_mode as i32),
            compression: compression(text(request, "compression")),
            routing_policy: Some(RoutingPolicy::RoundRobin),
            schema: schema(request)?,
            ..Default::default()
        };
        if request["batching"] == true {
            options.batch_size = Some(1000);
            options.batch_timeout = Some(Duration::from_secs(60));
        }
        let topic = text(request, "topic").unwrap_or_default();
        let mut builder = self.object::<Client>(request, "client")?.producer().with_topic(topic).with_options(options);
        if let Some(name) = text(request, "name") {
            builder = builder.with_name(name);
        }
        let object = self.kept::<Producer>(Mutex::new(builder.build().await?));
        // A producer tells neither its name nor what the broker knows of it.
        Ok(json!({"object": object, "name": request["name"], "last_sequence_id": -1}))
    }

    pub async fn send(&self, request: &Value) -> Answer {
        let producer = self.object::<Producer>(request, "producer")?;
        let sent = producer.lock().await.send_non_blocking(message(request)?).await?;
        receipt(sent.await?)
    }

    pub async fn send_together(&self, request: &Value) -> Answer {
        let producer = self.object::<Producer>(request, "producer")?;
        let mut producer = producer.lock().await;
        let mut sent = Vec::new();
        for fields in request["messages"].as_array().into_iter().flatten() {
            sent.push(producer.send_non_blocking(message(fields)?).await?);
        }
        if producer.options().batch_size.is_some() {
            producer.send_batch().await?;
        }
        let mut ids = Vec::new();
        for each in sent {
            ids.push(receipt(each.await?)?);
        }
        Ok(json!(ids))
    }
}

fn compression(named: Option<&str>) -> Option<Compression> {
    match named {
        Some("lz4") => Some(Compression::Lz4(Default::default())),
        Some("zlib") => Some(Compression::Zlib(Default::default())),
        Some("zstd") => Some(Compression::Zstd(Default::default())),
        Some("snappy") => Some(Compression::Snappy(Default::default())),
        _ => None,
    }
}

fn message(fields: &Value) -> Result<Message, Failure> {
    refuse(fields, &["sequence_id", "key_bytes", "schema"])?;
    let mut message = Message {
        payload: decoded(text(fields, "value").unwrap_or_default())?,
        partition_key: text(fields, "key").map(String::from),
        partition_key_b64_encoded: fields["key_is_base64"].as_bool().filter(|&is| is),
        ordering_key: text(fields, "ordering_key").map(|key| key.as_bytes().to_vec()),
        event_time: fields["event_time_ms"].as_i64().map(|time| time as u64),
        ..Default::default()
    };
    for (name, value) in fields["properties"].as_object().into_iter().flatten() {
        message.properties.insert(name.clone(), value.as_str().unwrap_or_default().into());
    }
    if let Some(delay) = milliseconds(fields, "deliver_after_ms") {
        let due = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)? + delay;
        message.deliver_at_time = Some(due.as_millis() as i64);
    }
    Ok(message)
}

fn receipt(receipt: CommandSendReceipt) -> Answer {
    match &receipt.message_id {
        Some(id) => Ok(encoded_id(id)),
        None => cannot_express("an id of a receipt"),
    }
}
