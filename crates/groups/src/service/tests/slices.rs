//! Looks at all groups.

use super::*;
use crate::walk::GROUPS_PER_SLICE;

#[test]
fn many_groups_are_looked_at_in_slices_and_none_is_left_out() {
    let mut desk = Desk::new();
    let many = 3 * GROUPS_PER_SLICE / 2;
    for n in 0..many {
        let joined = desk.member(&format!("m{n}"), &["t"]);
        desk.commit_as(&format!("m{n}"), &joined.member_id, joined.generation);
        desk.commit(&format!("o{n}"));
    }
    let listed = desk.list(&ListFilter::default()).unwrap();
    assert!(listed.len() == 2 * many && listed.is_sorted_by_key(|listed| &listed.group));
    assert_eq!(desk.list(&ListFilter::named(&["Stable"], &[])).unwrap().len(), many);

    let (mut walk, mut with_offsets) = (Walk::default(), Vec::new());
    while !walk.is_over() {
        with_offsets.extend(desk.groups.offsets().next_groups(&mut walk));
    }
    assert!(with_offsets.len() == 2 * many && with_offsets.is_sorted());
    assert_eq!(desk.groups.offsets().groups_len(), 2 * many);

    desk.now.moment = desk.now.moment.plus(10_000);
    desk.groups.tick(desk.now, &mut desk.out);
    assert_eq!(desk.groups.coordinator().members(), many - GROUPS_PER_SLICE, "a slice of them");
    assert_eq!(desk.groups.deadline(), Some(desk.now.moment), "the rest is due");
    desk.pass(0);
    assert_eq!(desk.groups.coordinator().members(), 0);

    desk.now.wall = desk.now.wall.plus(8 * 86_400_000);
    let mut walk = Walk::default();
    desk.groups.expire(&mut walk, desk.now, &mut desk.out);
    assert_eq!((desk.groups.offsets().len(), walk.is_over()), (2 * many - GROUPS_PER_SLICE, false));
    desk.expire();
    desk.settle();
    assert!(desk.groups.offsets().is_empty() && desk.groups.coordinator().is_empty());
}
