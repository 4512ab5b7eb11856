//! Secrets that are written in another form than they should be are not in the messages about that.

use super::*;

#[test]
fn a_password_that_is_a_number_or_badly_quoted_is_not_repeated() {
    let cases = [
        ("[sasl]\nusername = 'alice'\npassword = 87654321\n", "sasl.password is a number ("),
        ("[sasl]\nusername = 'alice'\npassword = 'hush87654321\n", "is not TOML: line 3: "),
        ("[sasl]\nusername = 'alice'\npassword = hush87654321\n", "is not TOML: line 3: "),
        ("sasl.password = 'a'\nsasl.password = 'hush87654321'\n", "is not TOML: line 2: "),
    ];
    for (file, expected) in cases {
        let mistakes = Case::new().file(file).mistakes();
        assert!(mistakes.contains(expected) && !mistakes.contains("87654321"), "{mistakes}");
    }
}

#[test]
#[cfg(feature = "iggy")]
fn an_address_with_a_password_is_not_repeated() {
    for value in ["iggy://me:hush@@@", "me:hush@host"] {
        let mistakes = Case::new().variable("MILENA_IGGY_URL", value).mistakes();
        assert!(!mistakes.is_empty() && !mistakes.contains("hush"), "{mistakes}");
    }
}
