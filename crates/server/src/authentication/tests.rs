use super::*;

#[test]
fn secrets_in_the_clear_are_told_where_others_can_listen() {
    let of = |address: &str| shown_to_others(address.parse().unwrap(), &Mechanism::ALL);
    for loopback in ["127.0.0.1:9092", "[::1]:9092"] {
        assert_eq!(of(loopback), [""; 0]);
    }
    for open in ["0.0.0.0:9092", "[::]:9092", "10.0.0.1:9092"] {
        assert_eq!(of(open), ["PLAIN", "OAUTHBEARER"]);
    }
    assert_eq!(shown_to_others("10.0.0.1:1".parse().unwrap(), &[Mechanism::ScramSha512]), [""; 0]);
}

#[test]
fn half_of_the_processors_check_passwords_and_one_at_least() {
    assert_eq!([1, 2, 3, 4, 16].map(turns), [1, 1, 1, 2, 8]);
}

#[tokio::test]
async fn while_a_password_waits_for_its_turn_others_are_served() {
    let mut config = crate::config::ServerConfig::default();
    let of = |hash| milena_auth::Verifier::derive(hash, "secret", b"0123456789abcdef", 4_096).unwrap();
    config.sasl.users = Users::single("alice", milena_auth::Hash::ALL.map(of));
    let bench = crate::handlers::testing::Bench::with(config).await;
    let authentication = &bench.broker.authentication;
    let mut held = Vec::new();
    for _ in 0..turns(std::thread::available_parallelism().unwrap().get()) {
        held.push(authentication.turns.take(Waits::Again).await);
    }
    let order = parking_lot::Mutex::new(Vec::new());
    let login = async {
        let token = Bytes::from_static(b"\0alice\0secret");
        let stranger = Waits::stranger(std::net::IpAddr::from([10, 0, 0, 1]));
        let (_, step) = authentication.step(Exchange::new(Mechanism::Plain), token, stranger).await;
        order.lock().push("let in");
        step
    };
    let others = async {
        let asked = milena_wire::kafka_protocol::messages::MetadataRequest::default();
        assert_eq!(bench.ask(1, &asked).await.brokers.len(), 1);
        let token = Bytes::from_static(b"n,,n=alice,r=x");
        let scram = Exchange::new(Mechanism::ScramSha256);
        let (_, step) = authentication.step(scram, token, Waits::Again).await;
        assert!(matches!(step, Step::Challenge(_)), "{step:?}");
        order.lock().push("served");
        drop(held);
    };
    let (step, ()) = tokio::join!(login, others);
    assert!(matches!(step, Step::Accepted(_)), "{step:?}");
    assert_eq!(*order.lock(), ["served", "let in"]);
}

#[test]
fn a_session_lasts_as_long_as_what_the_client_showed_and_as_is_configured() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(lifetime(Duration::ZERO, None), None);
    assert_eq!(lifetime(HOUR, None), Some(HOUR));
    assert_eq!(lifetime(HOUR, Some(now + 7_200)), Some(HOUR));
    let of_token = lifetime(HOUR * 3, Some(now + 7_200)).unwrap();
    assert!((HOUR..=HOUR * 2).contains(&of_token), "{of_token:?}");
    assert!(lifetime(Duration::ZERO, Some(now + 7_200)).is_some());
    // A token that is taken though it has just ended does not make a session without an end.
    assert_eq!(lifetime(HOUR, Some(now - 5)), Some(Duration::from_millis(1)));
    assert_eq!(lifetime(Duration::ZERO, Some(u64::MAX)), Some(LONGEST));
}
