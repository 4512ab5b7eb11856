//! Before, after, and instead of coordinating.

use super::*;

/// Everything that a client can ask, of a group that is there or not, with what was answered.
fn asked(desk: &mut Desk, joined: &Joined) -> Vec<(&'static str, Result<(), GroupError>)> {
    let (id, generation) = (&*joined.member_id, joined.generation);
    let sender = Sender { group: "g", member_id: id, instance_id: None, generation };
    let mut answers = vec![
        ("heartbeat", desk.groups.heartbeat(&sender, desk.now)),
        ("join", desk.send_join("g", &["t"]).map(|_| ()).map_err(|refused| refused.error)),
        ("commit", desk.commit_as("g", id, generation).remove(0)),
        ("fetch", desk.groups.view("g").map(|_| ())),
        ("delete offset", desk.delete_offset("g").map(|_| ())),
        ("delete group", desk.delete("g")),
        ("describe", desk.groups.describe("g").map(|_| ())),
    ];
    let leaving = [Leaving { member_id: id, instance_id: None }];
    answers.push(("leave", desk.groups.leave("g", &leaving, desk.now, &mut desk.out).map(|_| ())));
    let token = desk.token();
    let (protocol_type, protocol, assignments) = (None, None, [].as_slice());
    let sync =
        SyncRequest { group: "g", member_id: id, instance_id: None, generation, protocol_type, protocol, assignments };
    desk.groups.sync(token, &sync, desk.now, &mut desk.out);
    let Answer::Sync(synced) = desk.take(token) else { panic!("another answer") };
    answers.push(("sync", synced.map(|_| ())));
    answers
}

#[test]
fn while_offsets_are_loaded_clients_hear_what_makes_them_wait() {
    let mut desk = Desk::new();
    let joined = desk.member("g", &["t"]);
    desk.groups = Groups::new(GroupConfig::default(), OffsetConfig::default());
    for (what, answer) in asked(&mut desk, &joined) {
        let expected = match what {
            "heartbeat" => Ok(()),
            "sync" => Err(GroupError::RebalanceInProgress),
            _ => Err(GroupError::Loading),
        };
        assert_eq!(answer, expected, "{what}");
    }
    assert_eq!(desk.list(&ListFilter::default()), Err(GroupError::Loading));
}

#[test]
fn who_does_not_coordinate_sends_everybody_elsewhere_and_lists_nothing() {
    let mut desk = Desk::new();
    let joined = desk.member("g", &["t"]);
    desk.commit("h");
    desk.groups.resign(&mut desk.out);
    for round in ["resigned", "from the start"] {
        for (what, answer) in asked(&mut desk, &joined) {
            assert_eq!(answer, Err(GroupError::NotCoordinator), "{what}, {round}");
        }
        assert_eq!(desk.list(&ListFilter::default()), Ok(Vec::new()));
        assert_eq!((desk.groups.deadline(), desk.groups.coordinator().members()), (None, 0));
        assert!(desk.groups.offsets().is_empty() && desk.out.is_empty());
        desk.groups = Groups::elsewhere(GroupConfig::default(), OffsetConfig::default());
    }
}

#[test]
fn whoever_waits_when_the_coordinator_resigns_is_sent_elsewhere_and_hears_of_no_success() {
    let mut desk = Desk::new();
    desk.member("g", &["t"]);
    let (committing, deleting, waiting, joining) = (desk.token(), desk.token(), desk.token(), desk.token());
    let outsider = Sender { group: "h", member_id: "", instance_id: None, generation: Generation::NONE };
    let commit = |expected| {
        let mut part = part(0, 5);
        part.expected = expected;
        request("h", vec![topic("t", vec![part])])
    };
    desk.groups.commit(committing, &outsider, commit(None), desk.now, &mut desk.out);
    desk.groups.delete_group(deleting, "h", &mut desk.out);
    desk.groups.commit(waiting, &outsider, commit(Some(5)), desk.now, &mut desk.out);
    let join = JoinRequest {
        version: 3,
        group: "g",
        member_id: "",
        instance_id: None,
        client_id: "c",
        client_host: "h",
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: Some(10_000),
        protocol_type: "consumer",
        protocols: &[("range", b"")],
        fresh: "x",
    };
    desk.groups.join(joining, &join, desk.now, &mut desk.out);
    assert!(desk.out.answers.is_empty(), "all of them wait");

    let under_way = std::mem::take(&mut desk.out.appends);
    desk.groups.resign(&mut desk.out);
    assert_eq!(desk.out.answers.len(), 4, "each is answered once");
    let elsewhere = Err(GroupError::NotCoordinator);
    assert_eq!(desk.take(committing), Answer::Commit(vec![elsewhere]));
    assert_eq!(desk.take(deleting), Answer::DeleteGroup(elsewhere));
    assert_eq!(desk.take(waiting), Answer::Commit(vec![elsewhere]));
    let Answer::Join(Err(refused)) = desk.take(joining) else { panic!("another answer") };
    assert_eq!((refused.error, &*refused.member_id), (GroupError::NotCoordinator, "c-x"));

    // A record that was on its way lands nevertheless.
    for append in under_way {
        desk.groups.settled(append.ticket, true, &mut desk.out);
    }
    assert!(desk.out.is_empty() && desk.groups.offsets().is_empty());
}
