//! DeleteTopics (20), versions 1-6.
//!
//! - v1: names. v4: flexible. v5: error text. v6: by name or by id.
//! - Each topic succeeds or fails by itself. Unknown name 3, unknown id 100, internal 17; named twice, also once by name
//!   and once by id, 42 for every occurrence; name and id in one item, or neither, 42.
//! - A topic that is deleted by id is that incarnation: one that was created again under its name stays.
//! - Fetches that wait on the topic are woken by the store and answered with 3 or 100.
//! - The timeout of the request is honoured within bounds; what was not done by then is answered with 7.

use std::collections::HashMap;
use std::sync::Arc;

use milena_wire::kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use milena_wire::kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use milena_wire::kafka_protocol::messages::{ApiKey, DeleteTopicsRequest, DeleteTopicsResponse, TopicName};
use milena_wire::kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::admin::{AdminError, Deadline, Texts};
use crate::broker::Broker;
use crate::dispatch::{Api, Context, answer};
use crate::topics::{Sought, Topic, TopicError};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::DeleteTopics,
    name: "DeleteTopics",
    advertised: (1, 6),
    served: (1, 6),
    handle: |request| Box::pin(answer(ApiKey::DeleteTopics, request, delete_topics)),
};

/// From this version on topics are items with a name or an id.
const BY_ID: i16 = 6;

async fn delete_topics(context: Context, request: DeleteTopicsRequest) -> Option<DeleteTopicsResponse> {
    let limits = &context.broker.config.limits;
    let deadline = Deadline::new(request.timeout_ms, limits);
    let mut texts = Texts::new(limits);
    let items = if context.version < BY_ID {
        let named = |name| DeleteTopicState::default().with_name(Some(name));
        request.topic_names.into_iter().map(named).collect()
    } else {
        request.topics
    };
    let sought = items.iter().flat_map(|item: &DeleteTopicState| {
        let name = item.name.as_ref().map(|name| Sought::Name(name.as_str()));
        name.into_iter().chain([Sought::Id(item.topic_id)])
    });
    context.broker.topics.seek(sought).await;
    let wanted: Vec<_> = items.into_iter().map(|item| Wanted::new(&context.broker, item)).collect();
    let mut times: HashMap<Key, u32> = HashMap::new();
    for item in &wanted {
        *times.entry(item.key()).or_insert(0) += 1;
    }
    let mut responses = Vec::with_capacity(wanted.len());
    for item in wanted {
        let repeated = times.get(&item.key()).is_some_and(|times| *times > 1);
        let outcome = match &item.topic {
            _ if repeated => Err(AdminError::Request("the request names this topic more than once")),
            Err(error) => Err(error.clone()),
            Ok(topic) => deadline.within(context.broker.topics.delete(topic)).await,
        };
        responses.push(item.answered(outcome, &mut texts));
    }
    Some(DeleteTopicsResponse::default().with_responses(responses))
}

/// An item of the request, looked up.
struct Wanted {
    name: Option<TopicName>,
    id: Uuid,
    topic: Result<Arc<Topic>, AdminError>,
}

/// What makes two items the same.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Found(Uuid),
    Named(Option<TopicName>, Uuid),
}

impl Wanted {
    fn new(broker: &Broker, item: DeleteTopicState) -> Self {
        let topics = &broker.topics;
        let topic = match (&item.name, item.topic_id) {
            (Some(name), id) if id.is_nil() => topics.by_name(name).ok_or(AdminError::Topic(TopicError::NotFound)),
            (None, id) if !id.is_nil() => topics.by_id(id).ok_or(AdminError::UnknownId),
            (Some(_), _) => Err(AdminError::Request("an item gives both a name and an id")),
            (None, _) => Err(AdminError::Request("an item gives neither a name nor an id")),
        };
        Self { name: item.name, id: item.topic_id, topic }
    }

    fn key(&self) -> Key {
        match &self.topic {
            Ok(topic) => Key::Found(topic.id),
            Err(_) => Key::Named(self.name.clone(), self.id),
        }
    }

    fn answered(self, outcome: Result<(), AdminError>, texts: &mut Texts) -> DeletableTopicResult {
        // A topic that is gone since it was looked up is unknown in the terms in which it was asked for.
        let outcome = outcome.map_err(|error| match error {
            AdminError::Topic(TopicError::NotFound) if !self.id.is_nil() => AdminError::UnknownId,
            other => other,
        });
        let mut result =
            DeletableTopicResult::default().with_name(self.name).with_topic_id(self.id).with_error_message(None);
        // Whoever named one of name and id learns the other.
        if let Ok(topic) = &self.topic {
            result.name.get_or_insert_with(|| TopicName(StrBytes::from_string(topic.name.to_string())));
            result.topic_id = topic.id;
        }
        if let Err(error) = outcome {
            (result.error_code, result.error_message) = texts.of(&error);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ServerConfig;
    use crate::handlers::testing::{Bench, name};

    fn item(topic: Option<&str>, id: Uuid) -> DeleteTopicState {
        DeleteTopicState::default().with_name(topic.map(name)).with_topic_id(id)
    }

    fn request(items: Vec<DeleteTopicState>) -> DeleteTopicsRequest {
        DeleteTopicsRequest::default().with_topics(items).with_timeout_ms(5_000)
    }

    fn named(names: &[&str]) -> DeleteTopicsRequest {
        request(names.iter().map(|name| item(Some(name), Uuid::nil())).collect())
    }

    fn codes(response: &DeleteTopicsResponse) -> Vec<i16> {
        response.responses.iter().map(|topic| topic.error_code).collect()
    }

    #[tokio::test]
    async fn every_version_deletes_by_name() {
        for version in 1..=6 {
            let bench = Bench::new().await;
            bench.topic("t", 1).await;
            let request = match version {
                6 => named(&["t"]),
                _ => DeleteTopicsRequest::default().with_topic_names(vec![name("t")]).with_timeout_ms(5_000),
            };
            let response = bench.ask(version, &request).await;
            assert_eq!(codes(&response), [0], "version {version}");
            assert_eq!(response.responses[0].name, Some(name("t")), "version {version}");
            assert!(bench.broker.topics.list().is_empty(), "version {version}");
        }
    }

    #[tokio::test]
    async fn whoever_gives_the_name_or_the_id_learns_the_other() {
        let bench = Bench::new().await;
        let (one, two) = (bench.topic("one", 1).await, bench.topic("two", 1).await);
        let response = bench.ask(6, &request(vec![item(Some("one"), Uuid::nil()), item(None, two.id)])).await;
        assert_eq!(codes(&response), [0, 0]);
        let shown: Vec<_> = response.responses.into_iter().map(|topic| (topic.name, topic.topic_id)).collect();
        assert_eq!(shown, [(Some(name("one")), one.id), (Some(name("two")), two.id)]);
    }

    #[tokio::test]
    async fn an_unknown_name_is_3_and_an_unknown_id_100_without_a_name() {
        let bench = Bench::new().await;
        let id = Uuid::from_u128(9);
        let response = bench.ask(6, &request(vec![item(Some("x"), Uuid::nil()), item(None, id)])).await;
        assert_eq!(codes(&response), [3, 100]);
        assert_eq!((response.responses[1].name.clone(), response.responses[1].topic_id), (None, id));
    }

    #[tokio::test]
    async fn both_name_and_id_or_neither_is_an_invalid_request() {
        let bench = Bench::new().await;
        let id = bench.topic("t", 1).await.id;
        let response = bench.ask(6, &request(vec![item(Some("t"), id), item(None, Uuid::nil())])).await;
        assert_eq!(codes(&response), [42, 42]);
        assert!(bench.broker.topics.by_name("t").is_some());
    }

    #[tokio::test]
    async fn a_topic_named_twice_is_refused_at_every_occurrence_and_stays() {
        let bench = Bench::new().await;
        let id = bench.topic("t", 1).await.id;
        assert_eq!(codes(&bench.ask(6, &named(&["t", "t"])).await), [42, 42]);
        assert_eq!(codes(&bench.ask(6, &request(vec![item(Some("t"), Uuid::nil()), item(None, id)])).await), [42, 42]);
        assert_eq!(codes(&bench.ask(6, &named(&["x", "x"])).await), [42, 42]);
        assert!(bench.broker.topics.by_name("t").is_some());
    }

    #[tokio::test]
    async fn the_id_of_an_earlier_incarnation_does_not_delete_the_present_one() {
        let bench = Bench::new().await;
        let first = bench.topic("t", 1).await;
        bench.broker.topics.delete(&first).await.unwrap();
        bench.topic("t", 1).await;
        assert_eq!(codes(&bench.ask(6, &request(vec![item(None, first.id)])).await), [100]);
        assert!(bench.broker.topics.by_name("t").is_some());
    }

    #[tokio::test]
    async fn an_internal_topic_is_never_deleted() {
        let bench = Bench::with(ServerConfig { show_internal_topics: true, ..ServerConfig::default() }).await;
        let again = Bench::over(
            ServerConfig { show_internal_topics: true, ..ServerConfig::default() },
            Arc::clone(&bench.broker.store),
        );
        assert_eq!(codes(&again.await.ask(6, &named(&["__milena.configs"])).await), [17]);
    }

    #[tokio::test]
    async fn an_answer_to_many_unknown_names_is_bounded_by_the_size_of_the_request() {
        let bench = Bench::new().await;
        let names: Vec<String> = (0..50_000).map(|n| format!("{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (_, sent, answered) = bench.ask_sized(6, &named(&names)).await;
        assert!(answered < 2 * sent, "{answered} bytes for {sent}");
    }
}
