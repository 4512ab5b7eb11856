//! Any bytes into any entrance: nothing panics, and nobody is let in who should not be.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use milena_auth::fuzzing::TARGETS;
use proptest::prelude::*;

/// Seeds that reach far into each target; the rest is made from them by cutting and changing bytes.
fn corpus() -> Vec<Vec<u8>> {
    let keys = "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
    let seeds = [
        "",
        "\0\0\0",
        "n,,n=user,r=rOprNGfwEbeRWgbNEkqO\0c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
         p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "y,a=user,n=a=2Cb,r=x,ext=1\0c=eSws,r=x,p=AAAA",
        "r=nonceserver,s=c2FsdA==,i=4\0v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        "n,,\u{1}auth=Bearer eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhIiwiZXhwIjo5OTk5OTk5OTk5fQ.AAAA\u{1}\u{1}",
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIiwiZXhwIjo5OTk5OTk5OTk5fQ.",
        "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhIiwiZXhwIjo5OTk5OTk5OTk5fQ.AAAA",
        r#"{"keys":[{"kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"AAAA","kid":"k"}]}"#,
        r#"{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB","use":"sig","alg":"RS256"},{"kty":"oct","k":"AQAB"}]}"#,
        &format!("# people\n\na:b:SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==${keys}\r\n"),
        "\0tim\0tanstaaftanstaaf",
        "I\u{ad}X\u{2168}\u{627}1",
    ];
    seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect()
}

fn run(data: &[u8]) {
    for (_, target) in TARGETS {
        target(data);
    }
}

#[test]
fn the_corpus_and_every_beginning_of_it_is_taken() {
    for seed in corpus() {
        for end in 0..=seed.len() {
            run(&seed[..end]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn changed_bytes_are_taken(
        seed in prop::sample::select(corpus()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..6),
        joined in prop::option::of(prop::sample::select(corpus())),
    ) {
        let mut data = seed;
        data.extend(joined.unwrap_or_default());
        for (at, byte, how) in changes {
            let at = at.index(data.len().max(1));
            match how {
                0 if at < data.len() => data[at] = byte,
                1 if at < data.len() => drop(data.remove(at)),
                _ => data.insert(at.min(data.len()), byte),
            }
        }
        run(&data);
    }

    #[test]
    fn any_bytes_are_taken(data in prop::collection::vec(any::<u8>(), 0..300)) {
        run(&data);
    }
}
