//! The conditional commit of the documentation, byte for byte.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::collections::BTreeMap;

use milena::client::{Address, Client, NewTopic, Settings};
use milena_testkit::ChildServer;

const DOCUMENT: &str = include_str!("../../../docs/offsets.md");

/// The frames of the example: the request, the answer to it, the answer to the same once more.
fn example() -> [Vec<u8>; 3] {
    let section = DOCUMENT.split("## Conditional commit").nth(1).unwrap();
    let block = |number: usize| section.split("```text\n").nth(number).unwrap().split("```").next().unwrap();
    let request = block(1).lines().map(|line| line.split("  ").next().unwrap()).map(|line| match line {
        // The longest line has no room for two blanks before its explanation.
        line if line.contains("one partition") => line.split(" one partition").next().unwrap(),
        line => line,
    });
    let mut answers = block(2).lines();
    [bytes(&request.collect::<String>()), bytes(answers.next().unwrap()), bytes(answers.next().unwrap())]
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    let pairs = digits.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16));
    pairs.collect::<Result<_, _>>().unwrap()
}

#[tokio::test]
async fn the_documented_bytes_are_stored_once_and_then_told_what_is_there() {
    let server = ChildServer::start(env!("CARGO_BIN_EXE_milena"));
    let addresses = Address::parse_list(server.bootstrap()).unwrap();
    let mut client = Client::connect(&addresses, Settings::default()).await.unwrap();
    let topic = NewTopic { name: "orders".to_owned(), partitions: Some(1), ..NewTopic::default() };
    client.create_topic(&topic).await.unwrap();
    let partition = ("orders".to_owned(), 0);
    client.commit_offsets("app", &BTreeMap::from([(partition.clone(), 42)])).await.unwrap();

    let [request, stored, mismatch] = example();
    let mut raw = server.client().await;
    for expected in [stored, mismatch] {
        raw.send_bytes(&request).await;
        let answer = raw.read_frame().await.unwrap();
        let length = u32::try_from(answer.len()).unwrap().to_be_bytes();
        assert_eq!([&length[..], &answer].concat(), expected);
    }
    assert_eq!(client.committed("app").await.unwrap()[&partition].offset, 43);
}
