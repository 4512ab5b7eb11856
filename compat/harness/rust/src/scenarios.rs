//! The cases: the same ones as in the drivers of other languages.

use crate::{Driver, Outcome, Record, Secure, collect, expect, wait_until};

/// A fixed moment, in milliseconds.
const MOMENT: i64 = 1_700_000_000_000;

struct Case<'a> {
    client: &'static str,
    driver: &'a dyn Driver,
}

pub fn run(name: &str, client: &'static str, driver: &dyn Driver) -> Outcome {
    let case = Case { client, driver };
    match name {
        "codec-none" | "codec-gzip" | "codec-snappy" | "codec-lz4" | "codec-zstd" => {
            case.round_trip(name, name.trim_start_matches("codec-"), false)
        }
        "keys" => case.keys(),
        "headers" => case.headers(),
        "tombstones" => case.tombstones(),
        "timestamps" => case.timestamps(),
        "seek-by-time" => case.seek_by_time(),
        "idempotent" => case.round_trip(name, "none", true),
        "group-rebalance" => case.group_rebalance(),
        "group-continue" => case.read_ten_and_commit(name).and_then(|()| case.go_on(name)),
        "static-member" => case.static_member(),
        "tls" => case.tls(),
        "sasl-plain" => case.sasl(name, &["PLAIN"]),
        "sasl-scram" => case.sasl(name, &["SCRAM-SHA-512", "SCRAM-SHA-256"]),
        "restart-before" => case.read_ten_and_commit("restart"),
        "restart-after" => case.go_on("restart"),
        "admin-create" => case.admin_create(),
        "admin-describe" => case.admin_describe(),
        "admin-alter-config" => case.admin_alter_config(),
        "admin-grow" => case.admin_grow(),
        "admin-list-offsets" => case.admin_list_offsets(),
        "admin-reset-offsets" => case.admin_reset_offsets(),
        "admin-delete-records" => case.admin_delete_records(),
        "admin-delete-topic" => case.admin_delete_topic(),
        "admin-list-groups" => case.group_with_an_offset(name).map(drop),
        "admin-describe-group" => case.admin_describe_group(),
        "admin-delete-group" => case.admin_delete_group(),
        _ => Err("there is no such case".into()),
    }
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    Some(text.as_bytes().to_vec())
}

fn numbers(range: std::ops::Range<usize>) -> Vec<Option<Vec<u8>>> {
    range.map(|number| bytes(&number.to_string())).collect()
}

fn values(records: Vec<Record>) -> Vec<Option<Vec<u8>>> {
    records.into_iter().map(|record| record.value).collect()
}

fn record(value: Option<Vec<u8>>) -> Record {
    Record { value, ..Record::default() }
}

impl Case<'_> {
    /// The topic and the group of a case.
    fn name(&self, case: &str) -> String {
        format!("{}-{}-{case}", std::env::var("COMPAT_RUN").unwrap_or_default(), self.client)
    }

    fn topic(&self, case: &str, partitions: usize, config: &[(&str, &str)]) -> Outcome<String> {
        let topic = self.name(case);
        self.driver.create(&topic, partitions, config)?;
        // Apache Kafka answers before all that it says elsewhere knows of it.
        wait_until("the number of partitions of a new topic", || Ok(self.driver.leaders(&topic)?.len()), partitions)?;
        Ok(topic)
    }

    fn produce(&self, topic: &str, records: &[Record]) -> Outcome {
        self.driver.produce(topic, records, "none", false)
    }

    /// All records, and that there are no more.
    fn read_all(&self, topic: &str, count: usize) -> Outcome<Vec<Record>> {
        let records = self.driver.read(topic, count, 0)?;
        expect("offsets", records.iter().map(|record| record.offset).collect::<Vec<_>>(), (0..count as i64).collect())?;
        expect("the ends of the log", self.driver.bounds(topic)?, (0, count as i64))?;
        Ok(records)
    }

    fn round_trip(&self, case: &str, codec: &str, idempotent: bool) -> Outcome {
        let topic = self.topic(case, 1, &[])?;
        let of = |i: usize| Record {
            key: bytes(&format!("key {}", i % 7)),
            ..record(bytes(&format!("record {i:06} of a text that compresses well")))
        };
        let sent: Vec<_> = (0..500).map(of).collect();
        self.driver.produce(&topic, &sent, codec, idempotent)?;
        for (seen, sent) in self.read_all(&topic, sent.len())?.into_iter().zip(sent) {
            expect("a record", (seen.key, seen.value), (sent.key, sent.value))?;
        }
        Ok(())
    }

    fn keys(&self) -> Outcome {
        let topic = self.topic("keys", 1, &[])?;
        let sent = vec![None, bytes(""), Some(vec![0xff, 0, 0xfe])];
        let records: Vec<_> = sent.iter().map(|key| Record { key: key.clone(), ..record(bytes("v")) }).collect();
        self.produce(&topic, &records)?;
        expect("keys", self.read_all(&topic, 3)?.into_iter().map(|record| record.key).collect(), sent)
    }

    fn headers(&self) -> Outcome {
        let topic = self.topic("headers", 1, &[])?;
        let mut sent = vec![
            ("a".to_owned(), bytes("1")),
            ("a".to_owned(), bytes("2")),
            ("null".to_owned(), None),
            ("z-empty".to_owned(), bytes("")),
        ];
        if !self.driver.all_headers() {
            sent = vec![sent.swap_remove(0), sent.swap_remove(0)];
        }
        self.produce(&topic, &[Record { headers: sent.clone(), ..record(bytes("v")) }])?;
        expect("headers", self.read_all(&topic, 1)?.remove(0).headers, sent)
    }

    fn tombstones(&self) -> Outcome {
        let topic = self.topic("tombstones", 1, &[])?;
        let sent = vec![bytes("v"), None, bytes("")];
        let records: Vec<_> = sent.iter().map(|value| Record { key: bytes("k"), ..record(value.clone()) }).collect();
        self.produce(&topic, &records)?;
        expect("values", values(self.read_all(&topic, 3)?), sent)
    }

    fn timestamps(&self) -> Outcome {
        let topic = self.topic("timestamps", 1, &[])?;
        let sent = vec![Some(MOMENT), Some(MOMENT + 1), Some(MOMENT - 5000)];
        let records: Vec<_> = sent.iter().map(|&timestamp| Record { timestamp, ..record(bytes("v")) }).collect();
        self.produce(&topic, &records)?;
        expect("times", self.read_all(&topic, 3)?.iter().map(|record| record.timestamp).collect(), sent)
    }

    fn seek_by_time(&self) -> Outcome {
        let topic = self.topic("seek-by-time", 1, &[])?;
        let records: Vec<_> = numbers(0..10)
            .into_iter()
            .zip(0..)
            .map(|(value, i)| Record { timestamp: Some(MOMENT + i * 1000), ..record(value) })
            .collect();
        self.produce(&topic, &records)?;
        expect("the offset of the time", self.driver.offset_at(&topic, MOMENT + 3500)?, Some(4))?;
        expect("the record there", values(self.driver.read(&topic, 1, 4)?), numbers(4..5))?;
        expect("the offset of a time behind all", self.driver.offset_at(&topic, MOMENT + 99_000)?, None)
    }

    fn group_rebalance(&self) -> Outcome {
        let topic = self.topic("group-rebalance", 4, &[])?;
        let mut one = self.driver.member(&topic, &topic, None)?;
        let mut two = self.driver.member(&topic, &topic, None)?;
        let shares = || {
            one.poll(100)?;
            two.poll(100)?;
            Ok((one.assignment()?.len(), two.assignment()?.len()))
        };
        wait_until("two partitions each", shares, (2, 2))?;
        let mut both = [one.assignment()?, two.assignment()?].concat();
        both.sort_unstable();
        expect("the partitions of both", both, vec![0, 1, 2, 3])?;
        drop(two);
        let alone = || {
            one.poll(100)?;
            Ok(one.assignment()?.len())
        };
        wait_until("all partitions for the one that stays", alone, 4)
    }

    fn read_ten_and_commit(&self, case: &str) -> Outcome {
        let topic = self.topic(case, 1, &[])?;
        self.produce(&topic, &numbers(0..20).into_iter().map(record).collect::<Vec<_>>())?;
        let mut member = self.driver.member(&topic, &topic, None)?;
        expect("the first ten", values(collect(10, |most| member.poll(most))?), numbers(0..10))?;
        member.commit(&topic, 10)
    }

    fn go_on(&self, case: &str) -> Outcome {
        let topic = self.name(case);
        let mut member = self.driver.member(&topic, &topic, None)?;
        expect("the rest", values(collect(10, |most| member.poll(most))?), numbers(10..20))
    }

    /// There and back over a listener that is secured, and through a group, where the client has groups.
    fn secured(&self, case: &str, mechanism: Option<&'static str>) -> Outcome {
        let driver = self.driver.connected(&Secure::new(mechanism)?)?;
        let secured = Case { client: self.client, driver: driver.as_ref() };
        secured.round_trip(case, "none", false)?;
        if !secured.driver.has_groups() {
            return Ok(());
        }
        let case = format!("{case}-group");
        secured.read_ten_and_commit(&case)?;
        secured.go_on(&case)
    }

    fn tls(&self) -> Outcome {
        self.secured("tls", None)
    }

    /// With the right password one gets in by each mechanism, and with another one by none.
    fn sasl(&self, case: &str, mechanisms: &[&'static str]) -> Outcome {
        for mechanism in mechanisms {
            self.secured(&format!("{case}-{mechanism}"), Some(mechanism))?;
            let wrong = Secure { password: "not the password".to_owned(), ..Secure::new(Some(mechanism))? };
            expect(&format!("the word on a wrong password by {mechanism}"), self.driver.refused(&wrong)?, true)?;
        }
        Ok(())
    }

    fn static_member(&self) -> Outcome {
        let topic = self.topic("static-member", 4, &[])?;
        let mut stays = self.driver.member(&topic, &topic, Some("stays"))?;
        let mut goes = self.driver.member(&topic, &topic, Some("goes"))?;
        let shares = || {
            stays.poll(100)?;
            goes.poll(100)?;
            Ok((stays.assignment()?.len(), goes.assignment()?.len()))
        };
        wait_until("two partitions each", shares, (2, 2))?;
        let (had, seen) = (goes.assignment()?, stays.rebalances());
        drop(goes);
        let mut back = self.driver.member(&topic, &topic, Some("goes"))?;
        let shares = || {
            stays.poll(100)?;
            back.poll(100)?;
            Ok((stays.assignment()?.len(), back.assignment()?.len()))
        };
        wait_until("its partitions again", shares, (2, 2))?;
        expect("the partitions after its return", back.assignment()?, had)?;
        expect("the rebalances of the other", stays.rebalances(), seen)
    }

    fn admin_create(&self) -> Outcome {
        let topic = self.topic("admin-create", 3, &[("retention.ms", "86400000")])?;
        match self.driver.create(&topic, 3, &[]) {
            Ok(()) => Err("a topic was created twice".into()),
            Err(error) => {
                expect(&format!("whether [{error}] says that it exists"), self.driver.already_exists(&error), true)
            }
        }
    }

    fn admin_describe(&self) -> Outcome {
        let topic = self.topic("admin-describe", 3, &[("retention.ms", "86400000")])?;
        expect(
            "whether all have a leader",
            self.driver.leaders(&topic)?.iter().map(|&leader| leader >= 0).collect(),
            vec![true; 3],
        )?;
        let configs = self.driver.configs(&topic)?;
        expect("retention.ms", configs.get("retention.ms").map(String::as_str), Some("86400000"))?;
        expect("cleanup.policy", configs.get("cleanup.policy").map(String::as_str), Some("delete"))
    }

    fn admin_alter_config(&self) -> Outcome {
        let topic = self.topic("admin-alter-config", 1, &[])?;
        self.driver.set_config(&topic, "retention.ms", "3600000")?;
        wait_until(
            "retention.ms",
            || Ok(self.driver.configs(&topic)?.remove("retention.ms")),
            Some("3600000".to_owned()),
        )
    }

    fn admin_grow(&self) -> Outcome {
        let topic = self.topic("admin-grow", 1, &[])?;
        self.driver.grow(&topic, 3)?;
        wait_until("the number of partitions", || Ok(self.driver.leaders(&topic)?.len()), 3)
    }

    fn topic_of_ten(&self, case: &str) -> Outcome<String> {
        let topic = self.topic(case, 1, &[])?;
        self.produce(&topic, &vec![record(bytes("v")); 10])?;
        Ok(topic)
    }

    fn admin_list_offsets(&self) -> Outcome {
        let topic = self.topic_of_ten("admin-list-offsets")?;
        expect("the ends of the log", self.driver.bounds(&topic)?, (0, 10))
    }

    fn admin_reset_offsets(&self) -> Outcome {
        self.read_ten_and_commit("admin-reset-offsets")?;
        let topic = self.name("admin-reset-offsets");
        self.driver.store_offset(&topic, &topic, 3)?;
        let mut member = self.driver.member(&topic, &topic, None)?;
        expect("the records from there", values(collect(17, |most| member.poll(most))?), numbers(3..20))
    }

    fn admin_delete_records(&self) -> Outcome {
        let topic = self.topic_of_ten("admin-delete-records")?;
        self.driver.delete_records(&topic, 5)?;
        expect("the ends of the log", self.driver.bounds(&topic)?, (5, 10))
    }

    fn admin_delete_topic(&self) -> Outcome {
        let topic = self.topic("admin-delete-topic", 1, &[])?;
        let listed = || Ok(self.driver.topics()?.contains(&topic));
        wait_until("listed after its creation", listed, true)?;
        self.driver.delete_topic(&topic)?;
        wait_until("listed after its deletion", listed, false)
    }

    fn group_with_an_offset(&self, case: &str) -> Outcome<String> {
        let topic = self.topic(case, 1, &[])?;
        self.driver.store_offset(&topic, &topic, 0)?;
        wait_until("whether the group is listed", || Ok(self.driver.groups()?.contains(&topic)), true)?;
        Ok(topic)
    }

    fn admin_describe_group(&self) -> Outcome {
        let topic = self.topic("admin-describe-group", 2, &[])?;
        let mut member = self.driver.member(&topic, &topic, None)?;
        let share = || {
            member.poll(100)?;
            Ok(member.assignment()?.len())
        };
        wait_until("its partitions", share, 2)?;
        let (state, clients) = self.driver.describe_group(&topic)?;
        expect("its state", state.to_lowercase().as_str(), "stable")?;
        expect("its members", clients, vec![self.client.to_owned()])
    }

    fn admin_delete_group(&self) -> Outcome {
        let group = self.group_with_an_offset("admin-delete-group")?;
        self.driver.delete_group(&group)?;
        wait_until(
            "whether the group is listed after its deletion",
            || Ok(self.driver.groups()?.contains(&group)),
            false,
        )
    }
}
