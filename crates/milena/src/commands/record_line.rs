//! A record as one line of JSON. What `consume --json` writes, `produce --json` reads back as the same record.
//!
//! ```json
//! {"partition":0,"offset":7,"timestamp":1700000000000,"key":"k","value":"v","headers":[["trace","1"]]}
//! ```
//!
//! Key, value and header values are text, `null`, or `{"base64":"..."}` where the bytes are no UTF-8.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use milena_records::client::Record;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Timestamp of a record that has none.
pub(super) const NO_TIMESTAMP: i64 = -1;

/// The line of a record, without its end.
pub(super) fn write(partition: i32, record: &Record) -> String {
    let headers = record.headers.iter().map(|(name, value)| (name.as_str(), bytes_out(value.as_deref())));
    let line = Line {
        partition,
        offset: record.offset,
        timestamp: (record.timestamp_ms != NO_TIMESTAMP).then_some(record.timestamp_ms),
        key: bytes_out(record.key.as_deref()),
        value: bytes_out(record.value.as_deref()),
        headers: headers.collect(),
    };
    // Text, numbers and lists: there is nothing in it that JSON cannot say.
    serde_json::to_string(&line).unwrap_or_default()
}

#[derive(Serialize)]
struct Line<'a> {
    partition: i32,
    offset: i64,
    timestamp: Option<i64>,
    key: Value,
    value: Value,
    headers: Vec<(&'a str, Value)>,
}

type Headers = Vec<(String, Option<Vec<u8>>)>;

/// Reads a line: the record, without a timestamp unless the line has one, and the partition if the line names one.
///
/// The offset of a line is of the past and is ignored; so is `topic`, which other tools write.
pub(super) fn read(line: &[u8]) -> Result<(Record, Option<i32>), String> {
    let value: Value = serde_json::from_slice(line).map_err(|error| format!("it is no JSON ({error})"))?;
    let Value::Object(fields) = value else { return Err("it is no JSON object".to_owned()) };
    let known = ["partition", "offset", "timestamp", "key", "value", "headers", "topic"];
    if let Some(unknown) = fields.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("`{unknown}` is none of {}", known.join(", ")));
    }
    let number = |name: &str| match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_i64().map(Some).ok_or_else(|| format!("`{name}` is no whole number")),
    };
    let partition = number("partition")?
        .map(|partition| i32::try_from(partition).map_err(|_| "`partition` is too large".to_owned()))
        .transpose()?;
    let record = Record {
        offset: 0,
        timestamp_ms: number("timestamp")?.unwrap_or(NO_TIMESTAMP),
        key: bytes_in("key", fields.get("key"))?,
        value: bytes_in("value", fields.get("value"))?,
        headers: headers_in(&fields)?,
    };
    Ok((record, partition))
}

fn headers_in(fields: &Map<String, Value>) -> Result<Headers, String> {
    let pair = |header: &Value| match header.as_array().map(Vec::as_slice) {
        Some([Value::String(name), value]) => Ok((name.clone(), bytes_in("a header", Some(value))?)),
        _ => Err("`headers` must hold pairs like [\"name\",\"value\"]".to_owned()),
    };
    match fields.get("headers") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(headers)) => headers.iter().map(pair).collect(),
        Some(Value::Object(headers)) => {
            headers.iter().map(|(name, value)| Ok((name.clone(), bytes_in("a header", Some(value))?))).collect()
        }
        Some(_) => Err("`headers` must be a list of pairs or an object".to_owned()),
    }
}

fn bytes_out(bytes: Option<&[u8]>) -> Value {
    let Some(bytes) = bytes else { return Value::Null };
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::String(text.to_owned()),
        Err(_) => json!({"base64": STANDARD.encode(bytes)}),
    }
}

fn bytes_in(name: &str, value: Option<&Value>) -> Result<Option<Vec<u8>>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone().into_bytes())),
        Some(Value::Object(fields)) if fields.len() == 1 => match fields.get("base64").and_then(Value::as_str) {
            Some(text) => STANDARD.decode(text).map(Some).map_err(|error| format!("{name} is no base64: {error}")),
            None => Err(format!("{name} must be text, null, or {{\"base64\":\"...\"}}")),
        },
        Some(_) => Err(format!("{name} must be text, null, or {{\"base64\":\"...\"}}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_record_is_read_back_as_it_was_written() {
        let bytes = |bytes: &[u8]| Some(bytes.to_vec());
        let header = |name: &str, value: Option<Vec<u8>>| (name.to_owned(), value);
        let records = [
            Record { offset: 0, timestamp_ms: NO_TIMESTAMP, key: None, value: None, headers: Vec::new() },
            Record {
                offset: 0,
                timestamp_ms: 1_700_000_000_000,
                key: bytes(b""),
                value: bytes(&[0xff, 0x00, 0x80]),
                headers: vec![header("b", bytes(b"1")), header("a", None), header("b", bytes(&[0xfe]))],
            },
            Record {
                offset: 0,
                timestamp_ms: 0,
                key: bytes(b"\"\n\t"),
                value: bytes("ä".as_bytes()),
                headers: Vec::new(),
            },
        ];
        for record in records {
            let line = write(3, &record);
            assert!(!line.contains('\n'), "{line}");
            assert!(line.starts_with("{\"partition\":3,\"offset\":0,\"timestamp\":"), "{line}");
            assert_eq!(read(line.as_bytes()).unwrap(), (record, Some(3)));
        }
    }

    #[test]
    fn a_line_by_hand_needs_only_a_value() {
        let (record, partition) = read(br#"{"value":"v","headers":{"trace":"1"}}"#).unwrap();
        assert_eq!((record.value.as_deref(), record.key, partition), (Some(b"v".as_slice()), None, None));
        assert_eq!(record.headers, [("trace".to_owned(), Some(b"1".to_vec()))]);
        assert_eq!(record.timestamp_ms, NO_TIMESTAMP);
    }

    #[test]
    fn a_line_that_is_no_record_says_what_is_wrong() {
        let expected = [
            ("nothing", "it is no JSON ("),
            ("[1]", "it is no JSON object"),
            (r#"{"values":"x"}"#, "`values` is none of partition, offset"),
            (r#"{"value":5}"#, "value must be text, null, or"),
            (r#"{"key":{"base64":"%"}}"#, "key is no base64"),
            (r#"{"timestamp":"now"}"#, "`timestamp` is no whole number"),
            (r#"{"partition":3000000000}"#, "`partition` is too large"),
            (r#"{"headers":[["a"]]}"#, "`headers` must hold pairs"),
        ];
        for (line, message) in expected {
            let error = read(line.as_bytes()).unwrap_err();
            assert!(error.starts_with(message), "{line}: {error}");
        }
    }
}
