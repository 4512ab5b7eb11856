//! Precedence, mistakes, and what is shown.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use milena_server::config::Idempotence;
use milena_store::Durability;
use tokio::sync::Semaphore;

use super::keys::{self, OTHER_VARIABLES, find};
use super::load::Loaded;
use super::*;

struct Case {
    folder: tempfile::TempDir,
    sources: Sources,
}

impl Case {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sources = Sources { folder: folder.path().to_owned(), ..Sources::default() };
        Self { folder, sources }
    }

    fn file(mut self, text: &str) -> Self {
        let path = self.folder.path().join("given.toml");
        std::fs::write(&path, text).unwrap();
        self.sources.file = Some(path);
        self
    }

    fn default_file(self, text: &str) -> Self {
        std::fs::write(self.folder.path().join("milena.toml"), text).unwrap();
        self
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.sources.environment.push((OsString::from(name), OsString::from(value)));
        self
    }

    fn flag(mut self, path: &str, value: &str) -> Self {
        let source = format!("--{path}");
        self.sources.flags.push(Assignment { path: path.to_owned(), value: value.to_owned(), source });
        self
    }

    fn load(&self) -> Loaded {
        load(&self.sources).unwrap()
    }

    fn mistakes(&self) -> String {
        load(&self.sources).unwrap_err().to_string()
    }
}

mod secrets;

#[test]
fn without_anything_the_defaults_are_in_force() {
    let loaded = Case::new().load();
    assert_eq!(loaded.settings.data_dir, "./milena-data");
    let bind: SocketAddr = "127.0.0.1:9092".parse().unwrap();
    assert_eq!(loaded.settings.server.listeners.iter().map(|listener| listener.bind).collect::<Vec<_>>(), [bind]);
    assert!(keys::all().all(|key| loaded.source(key.path) == "default"));
}

#[test]
fn a_flag_is_above_a_variable_which_is_above_the_file() {
    let file = "num_partitions = 2\ninstance_id = 2\nsegment_bytes = '2 MiB'\n";
    let case = Case::new()
        .file(file)
        .variable("MILENA_INSTANCE_ID", "3")
        .variable("MILENA_SEGMENT_BYTES", "3 MiB")
        .flag("segment_bytes", "4 MiB");
    let loaded = case.load();
    assert_eq!(loaded.settings.server.num_partitions, 2);
    assert_eq!(loaded.settings.server.instance_id, 3);
    assert_eq!(loaded.settings.segment_bytes, 4 << 20);
    assert!(loaded.source("num_partitions").ends_with("given.toml"));
    assert_eq!(loaded.source("instance_id"), "MILENA_INSTANCE_ID");
    assert_eq!(loaded.source("segment_bytes"), "--segment_bytes");
}

#[test]
fn the_file_is_that_of_the_flag_then_that_of_the_variable_then_the_one_in_the_folder() {
    let with_default = || Case::new().default_file("num_partitions = 1\ninstance_id = 7");
    assert_eq!(with_default().load().settings.server.instance_id, 7);
    let elsewhere = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(elsewhere.path(), "instance_id = 8").unwrap();
    let named = || with_default().variable("MILENA_CONFIG", elsewhere.path().to_str().unwrap());
    assert_eq!(named().load().settings.server.instance_id, 8);
    assert_eq!(named().file("instance_id = 9").load().settings.server.instance_id, 9);
}

#[test]
fn a_file_that_was_named_and_is_missing_is_a_mistake() {
    let mistakes = Case::new().variable("MILENA_CONFIG", "/nowhere/milena.toml").mistakes();
    assert!(mistakes.starts_with("the configuration file /nowhere/milena.toml cannot be read: "), "{mistakes}");
}

#[test]
fn a_file_that_is_no_toml_is_a_mistake_with_its_line() {
    let mistakes = Case::new().file("num_partitions = 1\nnum_partitions == 2").mistakes();
    assert!(mistakes.contains("is not TOML") && mistakes.contains("line 2"), "{mistakes}");
}

#[test]
fn an_unknown_key_is_named_and_the_nearest_suggested() {
    let mistakes =
        Case::new().file("num_partition = 1\n[limits]\nmax_connection = 5\n[loging]\nlevel = 'info'").mistakes();
    assert!(mistakes.contains("the key `num_partition` is not known"), "{mistakes}");
    assert!(mistakes.contains("did you mean `num_partitions`?"), "{mistakes}");
    assert!(mistakes.contains("did you mean `limits.max_connections`?"), "{mistakes}");
    assert!(mistakes.contains("the key `loging` is not known"), "{mistakes}");
}

#[test]
fn a_key_in_the_wrong_section_is_pointed_to_the_right_one() {
    let mistakes = Case::new().file("max_connections = 5").mistakes();
    assert!(mistakes.contains("did you mean `limits.max_connections`?"), "{mistakes}");
}

#[test]
fn what_resembles_nothing_gets_no_suggestion() {
    let mistakes = Case::new().file("zookeeper = 'localhost:2181'").mistakes();
    assert!(mistakes.contains("`zookeeper` is not known") && !mistakes.contains("did you mean"), "{mistakes}");
}

#[test]
fn an_unknown_variable_is_named_and_the_nearest_suggested() {
    let mistakes = Case::new().variable("MILENA_DATADIR", "/data").variable("PATH", "/bin").mistakes();
    let expected = "the environment variable MILENA_DATADIR is not known; did you mean `MILENA_DATA_DIR`?";
    assert_eq!(mistakes, expected);
}

#[test]
fn a_bad_value_is_told_with_its_key_its_source_and_what_is_allowed() {
    let mistakes = Case::new()
        .file("auto_create_topics = 'perhaps'\nidempotence = 'exactly-once'\n[limits]\nidle_timeout = 5\n")
        .variable("MILENA_INSTANCE_ID", "65536")
        .flag("data_dir", "s3://bucket")
        .mistakes();
    let expected = [
        "auto_create_topics is `perhaps` (",
        "given.toml); it must be `true` or `false`",
        "idempotence is `exactly-once` (",
        "it must be one of `dedup`, `allocate`",
        "limits.idle_timeout is 5 (",
        "it must be a time with a unit like `30s`",
        "instance_id is `65536` (MILENA_INSTANCE_ID); it must be a whole number from 0 to 65535",
        "data_dir is `s3://bucket` (--data_dir); it must be a folder, or `memory://`",
    ];
    for part in expected {
        assert!(mistakes.contains(part), "{part:?} is not in {mistakes}");
    }
}

#[test]
fn a_connection_limit_above_what_can_be_counted_is_a_mistake_and_no_panic() {
    let at = Semaphore::MAX_PERMITS.to_string();
    let over = (Semaphore::MAX_PERMITS + 1).to_string();
    let loaded = Case::new().variable("MILENA_LIMITS_MAX_CONNECTIONS", &at).load();
    assert_eq!(loaded.settings.server.limits.max_connections, Semaphore::MAX_PERMITS);
    let mistakes = Case::new().variable("MILENA_LIMITS_MAX_CONNECTIONS", &over).mistakes();
    assert!(mistakes.starts_with(&format!("limits.max_connections is `{over}`")), "{mistakes}");
}

#[test]
fn a_section_that_is_no_table_is_a_mistake() {
    let mistakes = Case::new().file("limits = 5").mistakes();
    assert!(mistakes.contains("limits is 5") && mistakes.contains("write [limits]"), "{mistakes}");
}

#[test]
fn listeners_come_from_the_file_or_as_a_line_of_text() {
    let file = "[[listeners]]\nname = 'inside'\nbind = '0.0.0.0:9092'\nadvertised = 'milena:9092'\n\
                [[listeners]]\nname = 'outside'\nbind = '[::]:19092'\nadvertised = 'kafka.example'\n";
    let loaded = Case::new().file(file).load();
    let names = |loaded: &Loaded| -> Vec<String> {
        loaded.settings.server.listeners.iter().map(|listener| listener.name.clone()).collect()
    };
    assert_eq!(names(&loaded), ["inside", "outside"]);
    let loaded = Case::new().file(file).flag("listeners", "a=127.0.0.1:1").flag("listeners", "b=[::1]:2").load();
    assert_eq!(names(&loaded), ["a", "b"]);
    let loaded = Case::new().file(file).variable("MILENA_LISTENERS", "127.0.0.1:1").load();
    assert_eq!(names(&loaded), ["default"]);
    assert_eq!(loaded.source("listeners"), "MILENA_LISTENERS");
}

#[test]
fn a_wildcard_bind_without_an_advertised_host_is_refused_with_what_to_do() {
    let mistakes = Case::new().flag("listeners", "0.0.0.0:9092").mistakes();
    assert!(mistakes.contains("listener `default` binds 0.0.0.0:9092"), "{mistakes}");
    assert!(mistakes.contains("set its advertised host"), "{mistakes}");
    assert!(Case::new().flag("listeners", "0.0.0.0:9092@kafka.example").load().settings.server.validate().is_ok());
}

#[test]
fn a_misspelled_key_of_a_listener_is_named() {
    let mistakes = Case::new().file("[[listeners]]\nbind = '127.0.0.1:9092'\nadvertized = 'a'").mistakes();
    assert!(mistakes.contains("`advertized` is no key of a listener"), "{mistakes}");
    assert!(mistakes.contains("did you mean `advertised`?"), "{mistakes}");
}

#[test]
fn topics_are_mapped_by_names_with_dots() {
    let file = "[topic_mapping]\ndefault_stream = 'events'\n\
                [topic_mapping.topics.\"org.example.orders\"]\nstream = 'billing'\ntopic = 'orders_v2'\n";
    let mapping = Case::new().file(file).load().settings.server.topic_mapping;
    assert_eq!(mapping.default_stream, "events");
    let target = mapping.topics.get("org.example.orders").unwrap();
    assert_eq!((target.stream.as_str(), target.topic.as_str()), ("billing", "orders_v2"));
    let mistakes = Case::new().file("[topic_mapping.topics.orders]\nstrem = 'billing'").mistakes();
    assert!(
        mistakes.contains("did you mean `stream`?") && mistakes.contains("both `stream` and `topic`"),
        "{mistakes}"
    );
}

#[test]
fn topics_whose_names_begin_alike_are_mapped_by_a_rule() {
    let file = "[topic_mapping.topics.\"billing.*\"]\nstream = 'billing'\ntopic = '*'\n\
                [topic_mapping.topics.\"eu.*\"]\nstream = 'europe'\n";
    let mapping = Case::new().file(file).load().settings.server.topic_mapping;
    let rules: Vec<_> = mapping
        .prefixes
        .iter()
        .map(|(name, target)| (name.as_str(), target.stream.as_str(), target.topic_prefix.as_str()))
        .collect();
    assert_eq!(rules, [("billing.", "billing", ""), ("eu.", "europe", "eu.")]);
    assert!(mapping.topics.is_empty());
    for rule in ["topic = '*'", "stream = 's'\ntopic = 't'", "stream = 1", "stream = 's'\ntopic = 1"] {
        let mistakes = Case::new().file(&format!("[topic_mapping.topics.\"a.*\"]\n{rule}\n")).mistakes();
        assert!(mistakes.contains("the rule for topics `a.*`"), "{rule}: {mistakes}");
    }
}

#[test]
fn rules_that_give_one_place_two_names_are_a_mistake() {
    let file = "[topic_mapping.topics.\"a.*\"]\nstream = 's'\ntopic = '*'\n\
                [topic_mapping.topics.\"b.*\"]\nstream = 's'\ntopic = '*'\n";
    assert!(Case::new().file(file).mistakes().contains("'a.*' and 'b.*' have the same target"));
}

#[test]
fn a_mapping_that_contradicts_itself_is_a_mistake() {
    let file =
        "[topic_mapping.topics.a]\nstream = 's'\ntopic = 't'\n[topic_mapping.topics.b]\nstream = 's'\ntopic = 't'\n";
    assert!(Case::new().file(file).mistakes().starts_with("topic_mapping: "));
}

#[test]
fn topic_defaults_are_checked_like_topic_configs() {
    let loaded = Case::new().file("[topic_defaults]\nretention.ms = 1000\n\"max.message.bytes\" = '2000'").load();
    let defaults = &loaded.settings.server.topic_defaults;
    assert_eq!(defaults.get("retention.ms").map(String::as_str), Some("1000"));
    assert_eq!(defaults.get("max.message.bytes").map(String::as_str), Some("2000"));
    let mistakes = Case::new().file("[topic_defaults]\nretention.millis = 1000").mistakes();
    assert!(mistakes.starts_with("topic_defaults: "), "{mistakes}");
}

#[test]
fn the_segment_size_is_the_default_of_topics_too() {
    let loaded = Case::new().flag("segment_bytes", "8 MiB").load();
    assert_eq!(loaded.settings.store().segment_bytes, 8 << 20);
    let of_topics = |loaded: &Loaded| loaded.settings.server.topic_defaults.get("segment.bytes").cloned();
    assert_eq!(of_topics(&loaded).as_deref(), Some("8388608"));
    // Also beside defaults for other topic configs; one for the very same is above it.
    let case = || Case::new().flag("segment_bytes", "8 MiB").flag("topic_defaults.retention.ms", "1000");
    assert_eq!(of_topics(&case().load()).as_deref(), Some("8388608"));
    let both = case().flag("topic_defaults.segment.bytes", "2097152").load();
    assert_eq!(of_topics(&both).as_deref(), Some("2097152"));
}

#[test]
fn settings_reach_the_store_and_the_server() {
    let loaded = Case::new()
        .flag("data_dir", "memory://")
        .flag("durability", "interval")
        .flag("flush_interval", "250ms")
        .flag("flush_bytes", "1 MiB")
        .flag("idempotence", "allocate")
        .flag("limits.max_connections_per_address", "5")
        .load();
    let store = loaded.settings.store();
    assert_eq!(store.dir, None);
    assert_eq!(store.durability, Durability::Interval { every: Duration::from_millis(250), bytes: 1 << 20 });
    assert_eq!(loaded.settings.server.idempotence, Idempotence::Allocate);
    assert_eq!(loaded.settings.server.limits.max_connections_per_address, Some(5));
}

#[test]
fn what_is_shown_names_every_key_with_its_source() {
    let case = Case::new().default_file("num_partitions = 2").variable("MILENA_INSTANCE_ID", "3");
    let shown = show(&case.flag("durability", "always").load());
    let line = |name: &str| shown.lines().find(|line| line.starts_with(&format!("{name} = "))).unwrap().to_owned();
    assert!(line("num_partitions").ends_with("milena.toml"), "{shown}");
    assert!(line("instance_id").ends_with("# MILENA_INSTANCE_ID"), "{shown}");
    assert!(line("durability").starts_with("durability = \"always\""), "{shown}");
    assert!(line("durability").ends_with("# --durability"), "{shown}");
    assert!(line("max_connections").ends_with("# default"), "{shown}");
}

#[test]
fn what_is_shown_is_a_file_that_means_the_same() {
    let file = "durability = 'interval'\nsegment_bytes = 1234567\n[topic_mapping.topics.\"a.b\"]\nstream = 's'\ntopic = 't'\n\
                [topic_mapping.topics.\"a.*\"]\nstream = 'r'\ntopic = 'x*'\n\
                [topic_defaults]\n\"retention.ms\" = '1000'\n\
                [[listeners]]\nname = 'x'\nbind = '[::]:9092'\nadvertised = '[fd00::1]:1'\n\
                [limits]\nmax_connections_per_address = 7\nidle_timeout = '90s'\n";
    let loaded = Case::new().file(file).load();
    let again = Case::new().file(&show(&loaded)).load();
    assert_eq!(format!("{:?}", again.settings), format!("{:?}", loaded.settings));
}

#[test]
#[cfg(feature = "iggy")]
fn a_secret_is_not_taken_from_a_command_line_and_not_shown() {
    let url = "iggy://me:hush@host";
    for (path, value) in [("iggy.password", "hush"), ("iggy.url", url)] {
        let mistakes = Case::new().flag(path, value).mistakes();
        assert!(mistakes.contains("other users of the machine") && !mistakes.contains("hush"), "{mistakes}");
    }
    let shown = show(&Case::new().variable("MILENA_IGGY_URL", url).load());
    assert!(shown.contains("url = \"iggy://me@host\"") && !shown.contains("hush"), "{shown}");
    let case = Case::new().flag("iggy.url", "iggy://me@host").variable("MILENA_IGGY_PASSWORD", "hush");
    let shown = show(&case.load());
    assert!(shown.contains("# password is set and not shown") && !shown.contains("hush"), "{shown}");
}

#[test]
#[cfg(feature = "iggy")]
fn an_iggy_server_without_a_password_is_a_mistake_before_anything_starts() {
    let mistakes = Case::new().flag("iggy.url", "iggy://me@host").mistakes();
    assert!(mistakes.contains("MILENA_IGGY_PASSWORD"), "{mistakes}");
    let mistakes = Case::new().flag("iggy.url", "kafka://host").mistakes();
    assert!(mistakes.contains("does not begin with iggy://"), "{mistakes}");
}

#[test]
fn every_default_is_a_value_that_its_key_takes() {
    let mut settings = Settings::default();
    for key in keys::all() {
        let shown: toml::Table = format!("value = {}", key.kind.show(&(key.get)(&settings))).parse().unwrap();
        let value = figment::value::Value::serialize(shown.get("value").unwrap()).unwrap();
        let read = key.kind.read(&value).unwrap_or_else(|| panic!("{} does not take {value:?}", key.path));
        assert_eq!(read, (key.get)(&settings), "{}", key.path);
        (key.set)(&mut settings, read).unwrap();
    }
    assert_eq!(format!("{settings:?}"), format!("{:?}", Settings::default()));
}

#[test]
fn every_bound_of_the_server_has_a_key() {
    let limits = format!("{:?}", Settings::default().server.limits);
    let fields = limits.trim_start_matches("Limits {").trim_end_matches('}').split(", ");
    let names = fields.filter_map(|field| field.split_once(':')).map(|(name, _)| name.trim());
    let missing: Vec<&str> = names.filter(|name| find(&format!("limits.{name}")).is_none()).collect();
    assert!(missing.is_empty(), "no key in config/limits.rs for {missing:?}");
}

#[test]
fn every_setting_of_groups_has_a_key() {
    let groups = format!("{:?}", Settings::default().server.groups);
    let fields = groups.trim_start_matches("GroupSettings {").trim_end_matches('}').split(", ");
    let names = fields.filter_map(|field| field.split_once(':')).map(|(name, _)| name.trim());
    let missing: Vec<&str> = names.filter(|name| find(&format!("groups.{name}")).is_none()).collect();
    assert!(missing.is_empty(), "no key in config/groups.rs for {missing:?}");
}

#[test]
fn gateways_agree_with_others_where_there_may_be_others() {
    let cluster = |gateways: &str, shared| {
        let settings = Case::new().flag("cluster.gateways", gateways).load().settings;
        settings.server(shared).cluster
    };
    let several = Some(Settings::default().cluster);
    assert_eq!((cluster("auto", false), cluster("auto", true)), (None, several.clone()));
    assert_eq!((cluster("one", false), cluster("one", true)), (None, None));
    assert_eq!((cluster("several", false), cluster("several", true)), (several.clone(), several));
}

#[test]
fn a_lease_that_does_not_outlast_a_lost_beat_is_a_mistake() {
    let mistakes = Case::new().flag("cluster.lease_time", "8s").mistakes();
    assert!(mistakes.contains("cluster.lease_time is 8000; it must lie between 9000 and"), "{mistakes}");
}

#[test]
fn every_variable_is_of_one_key() {
    let mut variables: Vec<String> = keys::all().map(super::keys::Key::variable).collect();
    variables.extend(OTHER_VARIABLES.map(str::to_owned));
    let count = variables.len();
    variables.sort();
    variables.dedup();
    assert_eq!(variables.len(), count);
}

#[test]
fn the_password_of_iggy_clients_is_taken_from_a_variable_and_not_from_a_flag_and_never_shown() {
    let loaded = Case::new().variable("MILENA_IGGY_DOOR_PASSWORD", "hush-hush").load();
    assert_eq!(loaded.settings.iggy_door.password.reveal(), "hush-hush");
    for shown in [show(&loaded), format!("{:?}", loaded.settings)] {
        assert!(!shown.contains("hush"), "{shown}");
    }
    let mistakes = Case::new().flag("iggy_door.password", "hush-hush").mistakes();
    assert!(mistakes.contains("MILENA_IGGY_DOOR_PASSWORD") && !mistakes.contains("hush"), "{mistakes}");
    let mistakes = Case::new().file("iggy_door.password = 'h!'").mistakes();
    assert!(mistakes.contains("3 to 100 bytes") && !mistakes.contains("h!"), "{mistakes}");
}

#[test]
fn the_door_for_iggy_clients_is_shut_unless_an_address_is_given() {
    assert!(Settings::default().door().is_none());
    let file = "iggy_door.listen = '127.0.0.1:8090'\niggy_door.advertised = '[::1]:9'\niggy_door.offset_rules = 'free'";
    let door = Case::new().file(file).load().settings.door().unwrap();
    assert_eq!(door.listen, SocketAddr::from(([127, 0, 0, 1], 8_090)));
    assert_eq!(door.advertised, Some(("::1".to_owned(), 9)));
    assert!(door.password.is_none());
    let file = "iggy_door.listen = '127.0.0.1:0'\niggy_door.streams_max = 3\niggy_door.poll_wait = '250ms'";
    let limits = Case::new().file(file).load().settings.door().unwrap().limits;
    assert_eq!((limits.streams_max, limits.poll_wait), (3, Duration::from_millis(250)));
    assert!(Case::new().file("iggy_door.streams_max = 0").mistakes().contains("iggy_door.streams_max"));
    assert!(Case::new().file("iggy_door.listen = 'localhost:8090'").mistakes().contains("like 127.0.0.1:8090"));
}
