//! CreatePartitions.

use milena_wire::kafka_protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsTopic,
};
use milena_wire::kafka_protocol::messages::{BrokerId, CreatePartitionsRequest};

use super::words::{create, topic};
use crate::duo::{Duo, versions};

/// Topics grow.
pub async fn run(duo: &mut Duo) {
    for version in versions::<CreatePartitionsRequest>() {
        let name = format!("grows-v{version}");
        create(duo, &name, 2, &[]).await;
        for (step, name, count) in [
            ("an unknown topic", "nowhere", 3),
            ("a bad name", "a/b", 3),
            ("an empty name", "", 3),
            ("as many as there are", &name, 2),
            ("fewer", &name, 1),
            ("none", &name, 0),
            ("a negative count", &name, -1),
        ] {
            duo.step(step);
            duo.ask(version, |_| request(vec![grown(name, count, None)])).await;
        }
        duo.step("no topics");
        duo.ask(version, |_| request(vec![])).await;
        duo.step("a topic twice");
        duo.ask(version, |_| request(vec![grown(&name, 3, None), grown(&name, 4, None)])).await;
        duo.step("would grow");
        duo.ask(version, |_| request(vec![grown(&name, 3, None)]).with_validate_only(true)).await;
        for (step, count, places) in [
            ("too few places", 4, &[&[1][..]][..]),
            ("too many places", 3, &[&[1], &[1]]),
            ("no place", 3, &[]),
            ("a place without a broker", 3, &[&[]]),
            ("one broker twice in a place", 3, &[&[1, 1]]),
            ("a broker that is not there", 3, &[&[9]]),
        ] {
            duo.step(step);
            duo.ask(version, |_| request(vec![grown(&name, count, Some(places))]).with_validate_only(true)).await;
        }
        duo.step("grows");
        duo.ask(version, |_| request(vec![grown(&name, 3, None)])).await;
        duo.settled(&name, 3).await;
        duo.step("grows at a place");
        duo.ask(version, |_| request(vec![grown(&name, 4, Some(&[&[1]]))])).await;
        duo.settled(&name, 4).await;
        duo.step("one of two grows");
        duo.ask(version, |_| request(vec![grown(&name, 5, None), grown("nowhere", 5, None)])).await;
        duo.settled(&name, 5).await;
    }
}

fn request(topics: Vec<CreatePartitionsTopic>) -> CreatePartitionsRequest {
    CreatePartitionsRequest::default().with_topics(topics).with_timeout_ms(30_000)
}

fn grown(name: &str, count: i32, places: Option<&[&[i32]]>) -> CreatePartitionsTopic {
    let place = |brokers: &&[i32]| {
        CreatePartitionsAssignment::default().with_broker_ids(brokers.iter().copied().map(BrokerId).collect())
    };
    CreatePartitionsTopic::default()
        .with_name(topic(name))
        .with_count(count)
        .with_assignments(places.map(|places| places.iter().map(place).collect()))
}
