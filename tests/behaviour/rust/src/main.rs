// SPDX-License-Identifier: Apache-2.0

//! The Rust client behind a line protocol: one JSON object a line on stdin, one answer a line on stdout.
//!
//! A request is {"id": n, "op": name, ...}; its answer {"id": n, "result": ...} or {"id": n, "error": kind, "text": ...}.
//! Objects stay here and are named by numbers. Each request is a task of its own, so one that waits holds up nobody;
//! answers come in any order. What the client has no words for is answered with the error CannotExpress.

mod consuming;
mod driver;
mod producing;

use driver::{cannot_express, Driver, Failure};
use serde_json::{json, Value};
use std::io::Write;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, BufReader};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let driver = Arc::new(Driver::default());
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let request: Value = serde_json::from_str(&line)?;
        let driver = driver.clone();
        tokio::spawn(async move {
            let id = request["id"].clone();
            let answer = match tokio::spawn(async move { perform(&driver, &request).await }).await {
                Ok(Ok(result)) => json!({"id": id, "result": result}),
                Ok(Err(failure)) => json!({"id": id, "error": failure.kind, "text": failure.text}),
                Err(panicked) => json!({"id": id, "error": "Panic", "text": panicked.to_string()}),
            };
            writeln!(std::io::stdout().lock(), "{answer}").expect("somebody reads answers");
        });
    }
    Ok(())
}

async fn perform(driver: &Driver, request: &Value) -> Result<Value, Failure> {
    match request["op"].as_str().unwrap_or_default() {
        "client" => driver.client(request).await,
        "close" => driver.close(request).await,
        "producer" => driver.producer(request).await,
        "send" => driver.send(request).await,
        "send_together" => driver.send_together(request).await,
        "consumer" => driver.consumer(request).await,
        "receive" => driver.receive(request).await,
        "ack" | "ack_cumulative" | "nack" | "nack_twice" => driver.acknowledge(request).await,
        "unsubscribe" => driver.unsubscribe(request).await,
        "last_message_id" => driver.last_message_id(request).await,
        "schema" => driver.schema(request).await,
        "reader" => driver.reader(request).await,
        "read" => driver.read(request).await,
        missing => cannot_express(missing),
    }
}
