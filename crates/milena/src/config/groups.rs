//! The keys of section `groups`: consumer groups and committed offsets.

use milena_server::groups::ForeignOffsets;

use super::keys::{Key, WIRE_MAX, chosen, number, time};
use super::kinds::{Kind, Setting};

/// A number, or a size in bytes.
macro_rules! number {
    ($name:ident, $kind:expr, $help:expr) => {
        Key {
            path: concat!("groups.", stringify!($name)),
            kind: $kind,
            help: $help,
            get: |settings| Setting::Number(u64::try_from(settings.server.groups.$name).unwrap_or(u64::MAX)),
            set: |settings, value| number(&value, &mut settings.server.groups.$name),
        }
    };
}

/// A time.
macro_rules! time {
    ($name:ident, zero: $zero:expr, $help:expr) => {
        Key {
            path: concat!("groups.", stringify!($name)),
            kind: Kind::Time { zero: $zero },
            help: $help,
            get: |settings| Setting::Time(settings.server.groups.$name),
            set: |settings, value| time(&value, &mut settings.server.groups.$name),
        }
    };
}

const COUNT: Kind = Kind::Number { min: 1, max: WIRE_MAX };
const BYTES: Kind = Kind::Size { min: 1, max: WIRE_MAX };

pub(super) const GROUPS: &[Key] = &[
    time!(
        initial_rebalance_delay,
        zero: true,
        "How long the first rebalance of an empty group waits for more members; each that comes extends it."
    ),
    time!(session_timeout_min, zero: false, "Shortest session timeout that a member may ask for, else 26."),
    time!(session_timeout_max, zero: false, "Longest session timeout that a member may ask for, else 26."),
    time!(
        new_member_join_timeout,
        zero: false,
        "How long a member whose first join is not answered yet may wait before it is forgotten."
    ),
    number!(group_max_size, COUNT, "Members of one group. One more is refused with 81."),
    number!(groups_max, COUNT, "Groups that have members, or had some. One more is refused with 81."),
    number!(members_max, COUNT, "Members of all groups. One more is refused with 81."),
    number!(protocols_max, COUNT, "Assignors that a member may list, else 42."),
    number!(member_bytes_max, BYTES, "Bytes of names and metadata of a member, else 42."),
    number!(group_metadata_bytes_max, BYTES, "Bytes of names and metadata of all members of a group, else 81."),
    number!(
        members_bytes_max,
        BYTES,
        "Bytes of names, metadata and assignments of the members of all groups, else 81."
    ),
    number!(assignment_bytes_max, BYTES, "Bytes of the assignment of one member, else 42."),
    time!(offsets_retention, zero: false, "How long offsets of a group without members are kept."),
    time!(offsets_check_interval, zero: false, "How often expired offsets are looked for."),
    Key {
        path: "groups.foreign_offsets",
        kind: Kind::Choice(&["reject", "allow"]),
        help: "Offsets of topics and partitions that do not exist: `reject` answers 3, `allow` stores them.",
        get: |settings| Setting::Text(foreign_name(settings.server.groups.foreign_offsets).to_owned()),
        set: |settings, value| chosen(value, foreign, &mut settings.server.groups.foreign_offsets),
    },
    number!(
        offset_metadata_max,
        Kind::Number { min: 0, max: 32_767 },
        "UTF-16 units of the text that a client stores with an offset, else 12."
    ),
    number!(offsets_max, COUNT, "Offsets of all groups. One more is refused with 28."),
    number!(offsets_in_flight_max, COUNT, "Offset requests that wait for the store. One more is answered with 14."),
    number!(offsets_in_flight_bytes, BYTES, "Bytes of offsets that wait for the store. More is answered with 14."),
    number!(
        offsets_snapshot_bytes,
        Kind::Size { min: 1 << 16, max: 1 << 40 },
        "Bytes of the log of offsets after which a snapshot takes their place. A start reads at most about twice that \
         and the snapshot."
    ),
];

fn foreign_name(choice: ForeignOffsets) -> &'static str {
    match choice {
        ForeignOffsets::Reject => "reject",
        ForeignOffsets::Allow => "allow",
    }
}

fn foreign(name: &str) -> Option<ForeignOffsets> {
    [ForeignOffsets::Reject, ForeignOffsets::Allow].into_iter().find(|choice| foreign_name(*choice) == name)
}
