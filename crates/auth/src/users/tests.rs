use super::*;

fn verifier(hash: Hash, password: &str) -> Verifier {
    Verifier::derive(hash, password, b"0123456789abcdef", 4_096).unwrap()
}

#[test]
fn a_file_is_read_and_names_may_hold_colons() {
    let text = format!(
        "# people\n\nalice:{}\r\nalice:{}\ndomain:bob:{}\n",
        verifier(Hash::Sha256, "a"),
        verifier(Hash::Sha512, "a"),
        verifier(Hash::Sha512, "b")
    );
    let users = Users::parse(&text).unwrap();
    assert_eq!(users.len(), 2);
    assert!(users.is("alice", "a") && users.is("domain:bob", "b"));
    assert!(!users.is("alice", "b") && !users.is("nobody", "a") && !users.is("bob", "b"));
}

#[test]
fn a_line_that_is_wrong_is_named() {
    let good = format!("alice:{}", verifier(Hash::Sha256, "a"));
    let wrong = [
        format!("{good}\nbob"),
        format!("{good}\nbob:secret"),
        format!("{good}\n{good}"),
        format!("{good}\n:{}", verifier(Hash::Sha256, "a")),
        format!("{good}\n bob:{}", verifier(Hash::Sha256, "a")),
        format!("{good}\n{}", good.replace("alice", "bob").replace("4096", "1")),
    ];
    for text in wrong {
        let error = Users::parse(&text).unwrap_err();
        assert!(error.to_string().starts_with("line 2"), "{error}");
    }
}

#[test]
fn who_is_not_there_looks_like_who_is() {
    let users = Users::single("alice", Hash::ALL.map(|hash| verifier(hash, "a")));
    for hash in Hash::ALL {
        let (real, known) = users.scram("alice", hash).unwrap();
        let (decoy, unknown) = users.scram("nobody", hash).unwrap();
        assert!(known && !unknown);
        assert_eq!((decoy.salt().len(), decoy.iterations()), (real.salt().len(), real.iterations()));
        assert_ne!(decoy.salt(), real.salt());
        assert_eq!(users.scram("nobody", hash).unwrap().0, decoy);
    }
    assert_eq!(Users::default().scram("alice", Hash::Sha256), None);
    assert!(!Users::default().is("alice", "a"));
}

#[test]
fn nobodies_look_like_any_user_and_stay_who_they_are_when_others_change() {
    let of = |salt: &[u8], iterations| Verifier::derive(Hash::Sha512, "a", salt, iterations).unwrap();
    let (ours, kafkas) = (of(b"0123456789abcdef", 4_096), of(b"1fbq2d9dyyyf3j2k0n5ifvpfoj", 8_192));
    let text =
        with_secret(&with(&with("", "alice", std::slice::from_ref(&ours)), "carol", &[kafkas]), [7; SECRET_BYTES]);
    let challenges = |text: &str| -> Vec<(u32, Vec<u8>)> {
        let users = Users::parse(text).unwrap();
        let of = |number| users.scram(&format!("nobody-{number}"), Hash::Sha512).unwrap().0;
        (0..100).map(of).map(|decoy| (decoy.iterations(), decoy.salt().to_vec())).collect()
    };
    let before = challenges(&text);
    for iterations in [4_096, 8_192] {
        assert!(before.iter().any(|(found, _)| *found == iterations), "{iterations}");
    }
    // Another password of the first user, and one more user.
    let after = with(&with(&text, "alice", &[of(b"another salt 16 ", 4_096)]), "dave", &[ours]);
    assert_eq!(challenges(&after), before);
}

#[test]
fn a_password_costs_the_same_whoever_is_asked_for() {
    let of = |hash, iterations| Verifier::derive(hash, "a", b"0123456789abcdef", iterations).unwrap();
    let users = [
        ("alice", vec![of(Hash::Sha512, 4_096), of(Hash::Sha256, 16_384)]),
        ("bob", vec![of(Hash::Sha512, 8_192)]),
        ("carol", vec![of(Hash::Sha256, 4_096)]),
    ];
    let text = users.iter().fold(String::new(), |text, (name, verifiers)| with(&text, name, verifiers));
    let users = Users::parse(&text).unwrap();
    for name in ["alice", "bob", "carol", "nobody"] {
        let found = users.get(name).and_then(User::for_plain);
        let work: Vec<u32> = users.rest(found).iter().zip(work_of(found)).map(|(rest, own)| rest + own).collect();
        assert_eq!(work, [4_096, 8_192], "{name}");
        assert_eq!((users.is(name, "a"), users.is(name, "b")), (found.is_some(), false), "{name}");
    }
}

#[test]
fn a_file_gets_one_secret_and_a_bad_one_is_named() {
    let text = with_secret("# head", [1; SECRET_BYTES]);
    assert_eq!(text, "# head\n#decoys:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n");
    assert_eq!(with_secret(&text, [2; SECRET_BYTES]), text);
    assert_eq!(Users::parse(&text).unwrap().secret, Some(Secret::new([1; SECRET_BYTES])));
    assert_eq!(Users::parse("\n#decoys:AQE=").unwrap_err(), UsersError::Secret { line: 2 });
}

#[test]
fn many_changes_are_made_at_once() {
    let text = format!("# head\nalice:{0}\nbob:{0}\ncarol:{0}\n", verifier(Hash::Sha512, "a"));
    let new = Hash::ALL.map(|hash| verifier(hash, "new"));
    let edits = BTreeMap::from([
        ("alice", Edit { with: &new, ..Edit::default() }),
        ("bob", Edit { without: &Hash::ALL, ..Edit::default() }),
        ("dave", Edit { with: &new[..1], without: &Hash::ALL[1..] }),
    ]);
    let changed = changed(&text, &edits);
    let [sha256, sha512] = &new;
    let carol = text.lines().last().unwrap();
    assert_eq!(changed, format!("# head\nalice:{sha512}\n{carol}\nalice:{sha256}\ndave:{sha256}\n"));
}

#[test]
fn a_change_leaves_the_other_lines_as_they_are() {
    let text = format!("# head\nalice:{}\n\nbob:{}", verifier(Hash::Sha512, "a"), verifier(Hash::Sha512, "b"));
    let changed = with(&text, "alice", &Hash::ALL.map(|hash| verifier(hash, "new")));
    let lines: Vec<&str> = changed.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[2]), (5, "# head", ""));
    assert!(lines[1].starts_with("alice:SCRAM-SHA-512$") && lines[4].starts_with("alice:SCRAM-SHA-256$"));
    let users = Users::parse(&changed).unwrap();
    assert!(users.is("alice", "new") && users.is("bob", "b"));
    assert_eq!(without(&changed, "bob", None).lines().count(), 4);
    let half = without(&changed, "alice", Some(Hash::Sha512));
    assert!(Users::parse(&half).unwrap().get("alice").unwrap().verifier(Hash::Sha512).is_none());
    assert_eq!(without(&changed, "nobody", None), changed);
}

#[test]
fn users_of_two_places_are_all_there_and_the_first_place_counts() {
    let of = |name, password| Users::single(name, Hash::ALL.map(|hash| verifier(hash, password)));
    let both = of("alice", "first").or(of("alice", "second")).or(of("bob", "b"));
    assert!(both.is("alice", "first") && !both.is("alice", "second") && both.is("bob", "b"));
}

#[test]
fn a_name_that_the_file_could_not_hold_is_refused() {
    for name in ["#a", " a", "a ", "a\nb", "", "a:SCRAM-SHA-1"] {
        assert!(check_name(name).is_err(), "{name}");
    }
    assert_eq!(check_name("CN=alice,O=example"), Ok(()));
}
