//! What is on its way to the log counts already.

use super::*;

#[test]
fn a_group_whose_first_commit_is_under_way_keeps_its_generation() {
    let mut desk = Desk::new();
    let joined = desk.member("g", &["t"]);
    desk.leave("g", &joined);
    let token = desk.token();
    let sender = Sender { group: "g", member_id: "", instance_id: None, generation: Generation::NONE };
    let request = request("g", vec![topic("t", vec![part(0, 5)])]);
    desk.groups.commit(token, &sender, request, desk.now, &mut desk.out);
    desk.expire();
    assert!(matches!(desk.take(token), Answer::Commit(results) if results == [Ok(())]));
    assert!(desk.send_join("g", &["t"]).unwrap().generation > joined.generation);
}

#[test]
fn offsets_that_expire_leave_half_of_the_room_to_commits() {
    let mut desk = Desk::new();
    let config = OffsetConfig { restart_grace_ms: 0, in_flight_max: 10, ..OffsetConfig::default() };
    desk.groups = Groups::new(GroupConfig::default(), config);
    desk.groups.loaded(desk.now.wall);
    for n in 0..20 {
        assert_eq!(desk.commit(&format!("g{n:02}")), [Ok(())]);
    }
    desk.now.wall = desk.now.wall.plus(8 * 86_400_000);
    desk.expire();
    assert_eq!((desk.out.appends.len(), desk.groups.offsets().len()), (5, 15));
    // Without a settled record in between.
    let token = desk.token();
    let sender = Sender { group: "new", member_id: "", instance_id: None, generation: Generation::NONE };
    let request = request("new", vec![topic("t", vec![part(0, 5)])]);
    desk.groups.commit(token, &sender, request, desk.now, &mut desk.out);
    assert!(desk.out.answers.is_empty(), "it is on its way");
    for _ in 0..4 {
        desk.settle();
        desk.expire();
    }
    desk.settle();
    assert_eq!(desk.groups.offsets().len(), 1, "the next rounds take the rest");
}
