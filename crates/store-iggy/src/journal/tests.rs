use super::*;

fn topic() -> TopicRef {
    TopicRef::new("kafka", "orders", 1, 2, 3)
}

/// What version 1 wrote; it must be readable for ever.
#[test]
fn the_stored_form_of_version_1_does_not_change() {
    let settings = TopicSettings {
        retention: Some(Some(Duration::from_secs(1))),
        retention_bytes: Some(None),
        durability: Some(Durability::Always),
        ..TopicSettings::default()
    };
    let of = r#""of":{"stream_id":1,"topic_id":2,"created_at_micros":3}"#;
    let fixtures = [
        (
            Record::settings(&topic(), &settings),
            format!(
                r#"{{"op":"settings",{of},"settings":{{"retention":{{"limit":1000000}},"retention_bytes":{{"limit":null}},"durability":"always"}}}}"#
            ),
        ),
        (Record::trim(&topic().partition(7), 9, 0), format!(r#"{{"op":"trim",{of},"partition":7,"before":9}}"#)),
        (Record::gone(&topic()), format!(r#"{{"op":"gone",{of}}}"#)),
    ];
    for (record, json) in fixtures {
        let bytes = [&[1], json.as_bytes()].concat();
        assert_eq!(record.encode().unwrap(), bytes, "{json}");
        assert_eq!(Record::decode(&bytes), Ok(record));
    }
}

#[test]
fn the_stored_form_of_version_2_does_not_change() {
    let of = r#""of":{"stream_id":1,"topic_id":2,"created_at_micros":3}"#;
    let at = topic().partition(7);
    let claim = Record::Claim { of: (&topic()).into(), partition: 7, by: 5, at_micros: 6 };
    let snapshot = Record::Snapshot { id: 1, covers: 2, part: 0, parts: 1, records: vec![Record::gone(&topic())] };
    let fixtures = [
        (Record::trim(&at, 9, 4), format!(r#"{{"op":"trim",{of},"partition":7,"before":9,"epoch":4}}"#)),
        (Record::epoch(&at, 4, 50), format!(r#"{{"op":"epoch",{of},"partition":7,"epoch":4,"start":50}}"#)),
        (Record::ends(&topic(), vec![(7, 4, 60)]), format!(r#"{{"op":"ends",{of},"ends":[[7,4,60]]}}"#)),
        (Record::claim(&at, 5), format!(r#"{{"op":"claim",{of},"partition":7,"by":5}}"#)),
        (claim, format!(r#"{{"op":"claim",{of},"partition":7,"by":5,"at_micros":6}}"#)),
        (
            snapshot,
            format!(r#"{{"op":"snapshot","id":1,"covers":2,"part":0,"parts":1,"records":[{{"op":"gone",{of}}}]}}"#),
        ),
    ];
    for (record, json) in fixtures {
        let bytes = [&[2], json.as_bytes()].concat();
        assert_eq!(record.encode().unwrap(), bytes, "{json}");
        assert_eq!(Record::decode(&bytes), Ok(record));
    }
}

#[test]
fn settings_come_back_as_they_were() {
    let all = [
        TopicSettings::default(),
        TopicSettings {
            retention: Some(None),
            retention_bytes: Some(Some(7)),
            segment_bytes: Some(1),
            segment_age: Some(Duration::from_millis(5)),
            keep_forever: true,
            durability: Some(Durability::Interval { every: Duration::from_secs(1), bytes: 9 }),
            flush_messages: Some(3),
            flush_every: Some(Duration::from_secs(2)),
        },
    ];
    for settings in all {
        let Ok(Record::Settings { settings: kept, .. }) =
            Record::decode(&Record::settings(&topic(), &settings).encode().unwrap())
        else {
            panic!("another record");
        };
        assert_eq!(TopicSettings::from(&kept), settings);
    }
}

#[test]
fn records_of_a_newer_version_are_an_error_and_not_skipped() {
    assert!(Record::decode(&[3, b'{', b'}']).unwrap_err().contains("version is 3"));
    assert!(Record::decode(&[]).is_err());
    assert!(Record::decode(b"\x01{").is_err());
}
