// SPDX-License-Identifier: Apache-2.0

//! What all operations share: the objects, the clients, the fields of requests, failures.

use base64::{engine::general_purpose::STANDARD as BASE64, Engine};
use prost::Message as _;
use pulsar::authentication::basic::BasicAuthentication;
use pulsar::proto::{KeyValue, MessageIdData, Schema};
use pulsar::{Authentication, OperationRetryOptions, Pulsar, TokioExecutor};
use serde_json::{json, Value};
use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub type Client = Pulsar<TokioExecutor>;
pub type Answer = Result<Value, Failure>;

#[derive(Default)]
pub struct Driver {
    objects: Mutex<HashMap<u64, Arc<dyn Any + Send + Sync>>>,
    numbers: AtomicU64,
    clients: tokio::sync::Mutex<HashMap<String, u64>>,
}

/// `kind` is the server's name of an error where it sent one.
pub struct Failure {
    pub kind: String,
    pub text: String,
}

impl<E: std::fmt::Display> From<E> for Failure {
    fn from(error: E) -> Failure {
        let text = error.to_string();
        let sent = text.split_once("error (Some(").and_then(|(_, named)| named.split_once(')'));
        let kind = sent.map_or("Error", |(kind, _)| kind).to_string();
        Failure { kind, text }
    }
}

pub fn cannot_express<T>(what: &str) -> Result<T, Failure> {
    Err(Failure { kind: "CannotExpress".into(), text: what.into() })
}

/// Fails where the client has no words for a field that is asked for.
pub fn refuse(request: &Value, names: &[&str]) -> Result<(), Failure> {
    let nothing = [json!(null), json!(false), json!(0)];
    match names.iter().find(|&&name| !nothing.contains(&request[name])) {
        Some(name) => cannot_express(name),
        None => Ok(()),
    }
}

impl Driver {
    pub fn kept<T: Any + Send + Sync>(&self, object: T) -> u64 {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.objects.lock().unwrap().insert(number, Arc::new(object));
        number
    }

    pub fn object<T: Any + Send + Sync>(&self, request: &Value, name: &str) -> Result<Arc<T>, Failure> {
        let number = request[name].as_u64().unwrap_or_default();
        let found = self.objects.lock().unwrap().get(&number).cloned();
        found.and_then(|object| object.downcast().ok()).ok_or(format!("there is no {name} {number}").into())
    }

    pub fn removed(&self, number: u64) -> Option<Arc<dyn Any + Send + Sync>> {
        self.objects.lock().unwrap().remove(&number)
    }

    /// One for each address and access, for ever.
    pub async fn client(&self, request: &Value) -> Answer {
        let mut clients = self.clients.lock().await;
        let access = &request["access"];
        let url = text(request, "url").unwrap_or_default();
        let name = format!("{url} {access}");
        if let Some(number) = clients.get(&name) {
            return Ok(json!(number));
        }
        refuse(access, &["certificate"])?;
        let mut builder = Pulsar::builder(url, TokioExecutor).with_operation_retry_options(OperationRetryOptions {
            operation_timeout: Duration::from_secs(15),
            retry_delay: Duration::from_millis(100),
            max_retries: Some(2),
        });
        if let Some(path) = text(access, "trust_certs") {
            builder = builder.with_certificate_chain_file(path)?.with_tls_hostname_verification_enabled(true);
        }
        if let Some(token) = text(access, "token") {
            builder = builder.with_auth(Authentication { name: "token".into(), data: token.into() });
        }
        if let (Some(user), Some(password)) = (text(access, "user"), text(access, "password")) {
            builder = builder.with_auth_provider(BasicAuthentication::new(user, password));
        }
        let number = self.kept(builder.build().await?);
        clients.insert(name, number);
        Ok(json!(number))
    }
}

pub fn text<'a>(request: &'a Value, name: &str) -> Option<&'a str> {
    request[name].as_str()
}

pub fn milliseconds(request: &Value, name: &str) -> Option<Duration> {
    request[name].as_u64().map(Duration::from_millis)
}

pub fn decoded(base64: &str) -> Result<Vec<u8>, Failure> {
    Ok(BASE64.decode(base64)?)
}

/// The schema of a request, which has its number and its data.
pub fn schema(request: &Value) -> Result<Option<Schema>, Failure> {
    let given = &request["schema"];
    let Some(number) = text(given, "type") else { return Ok(None) };
    let properties = given["properties"].as_object().into_iter().flatten();
    Ok(Some(Schema {
        name: String::new(),
        schema_data: decoded(text(given, "definition").unwrap_or_default())?,
        r#type: number.parse::<i32>()?,
        properties: properties
            .map(|(key, value)| KeyValue { key: key.clone(), value: value.as_str().unwrap_or_default().into() })
            .collect(),
    }))
}

pub fn encoded(bytes: &[u8]) -> Value {
    json!(BASE64.encode(bytes))
}

pub fn encoded_id(id: &MessageIdData) -> Value {
    encoded(&id.encode_to_vec())
}

pub fn decoded_id(named: &str) -> Result<MessageIdData, Failure> {
    let end = |number| MessageIdData { ledger_id: number, entry_id: number, ..Default::default() };
    match named {
        "earliest" => Ok(end(u64::MAX)),
        "latest" => Ok(end(i64::MAX as u64)),
        serialized => Ok(MessageIdData::decode(decoded(serialized)?.as_slice())?),
    }
}
