//! The messages of SCRAM as text (RFC 5802, section 7).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::Denied;

/// Longest nonce of a client, in bytes. Kafka's clients send some 30.
const NONCE_BYTES_MAX: usize = 512;

/// Longest first message of a client, in bytes: what is kept of it until the last one is some times that. Room for a name of the
/// longest text, all of it escaped, twice.
const FIRST_BYTES_MAX: usize = 8 << 10;

/// Extension by which Kafka's clients say that they have a delegation token (KIP-48).
const TOKEN_AUTH: &str = "tokenauth";

/// The first message of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClientFirst {
    /// What the last message repeats in base64.
    pub(super) gs2_header: String,
    /// What is signed.
    pub(super) bare: String,
    pub(super) authorization_id: String,
    pub(super) name: String,
    pub(super) nonce: String,
}

/// The last message of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClientLast {
    /// What is signed.
    pub(super) without_proof: String,
    /// The header of the first message.
    pub(super) gs2_header: Vec<u8>,
    pub(super) nonce: String,
    pub(super) proof: Vec<u8>,
}

impl ClientFirst {
    pub(super) fn parse(token: &[u8]) -> Result<Self, Denied> {
        const BAD: Denied = Denied::Malformed("first message");
        if token.len() > FIRST_BYTES_MAX {
            return Err(BAD);
        }
        let text = std::str::from_utf8(token).map_err(|_| BAD)?;
        let (flag, rest) = text.split_once(',').ok_or(BAD)?;
        if flag.starts_with("p=") {
            return Err(Denied::ChannelBinding);
        }
        // `y` is a client that would bind channels, if the server did.
        if flag != "n" && flag != "y" {
            return Err(BAD);
        }
        let (authorization_id, bare) = rest.split_once(',').ok_or(BAD)?;
        let gs2_header = format!("{flag},{authorization_id},");
        let authorization_id = match authorization_id {
            "" => String::new(),
            text => unescaped(text.strip_prefix("a=").ok_or(BAD)?).ok_or(BAD)?,
        };
        let mut attributes = bare.split(',');
        // A mandatory extension (`m=`) would stand before the name, and none is known.
        let name = attributes.next().and_then(|name| name.strip_prefix("n=")).ok_or(BAD)?;
        let name = unescaped(name).ok_or(BAD)?;
        let nonce = attributes.next().and_then(|nonce| nonce.strip_prefix("r=")).ok_or(BAD)?;
        if !is_nonce(nonce) || nonce.len() > NONCE_BYTES_MAX {
            return Err(BAD);
        }
        for extension in attributes {
            let (key, value) = extension.split_once('=').ok_or(BAD)?;
            if key == TOKEN_AUTH && value.eq_ignore_ascii_case("true") {
                return Err(Denied::TokenAuth);
            }
        }
        Ok(Self { gs2_header, bare: bare.to_owned(), authorization_id, name, nonce: nonce.to_owned() })
    }
}

impl ClientLast {
    pub(super) fn parse(token: &[u8]) -> Result<Self, Denied> {
        const BAD: Denied = Denied::Malformed("last message");
        let text = std::str::from_utf8(token).map_err(|_| BAD)?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or(BAD)?;
        let proof = BASE64.decode(proof).map_err(|_| BAD)?;
        let mut attributes = without_proof.split(',');
        let binding = attributes.next().and_then(|binding| binding.strip_prefix("c=")).ok_or(BAD)?;
        let gs2_header = BASE64.decode(binding).map_err(|_| BAD)?;
        let nonce = attributes.next().and_then(|nonce| nonce.strip_prefix("r=")).ok_or(BAD)?;
        Ok(Self { without_proof: without_proof.to_owned(), gs2_header, nonce: nonce.to_owned(), proof })
    }
}

/// True for printable ASCII without a comma, and some of it.
pub(super) fn is_nonce(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}

/// A name as it stands in a message: commas and equals signs have codes.
pub(super) fn escaped(name: &str) -> String {
    name.replace('=', "=3D").replace(',', "=2C")
}

/// The name that a message means; `None` when an equals sign begins no code, or nothing is there.
fn unescaped(text: &str) -> Option<String> {
    let mut parts = text.split('=');
    let mut name = parts.next()?.to_owned();
    for part in parts {
        let (sign, rest) = match part.get(..2)? {
            "2C" => (',', part.get(2..)?),
            "3D" => ('=', part.get(2..)?),
            _ => return None,
        };
        name.push(sign);
        name.push_str(rest);
    }
    Some(name).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_message_is_taken_apart() {
        let first = ClientFirst::parse(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO").unwrap();
        assert_eq!((first.name.as_str(), first.nonce.as_str()), ("user", "rOprNGfwEbeRWgbNEkqO"));
        assert_eq!((first.gs2_header.as_str(), first.authorization_id.as_str()), ("n,,", ""));
        assert_eq!(first.bare, "n=user,r=rOprNGfwEbeRWgbNEkqO");
        let first = ClientFirst::parse(b"y,a=b=2Cc,n=a=3D=2C,r=x,ext=1,tokenauth=false").unwrap();
        assert_eq!((first.name.as_str(), first.authorization_id.as_str()), ("a=,", "b,c"));
        assert_eq!(first.gs2_header, "y,a=b=2Cc,");
    }

    #[test]
    fn a_first_message_of_another_form_is_refused() {
        const BAD: Denied = Denied::Malformed("first message");
        let long = format!("n,,n=u,r={}", "x".repeat(NONCE_BYTES_MAX + 1));
        let extended = format!("n,,n=u,r=x,a={}", "x".repeat(FIRST_BYTES_MAX));
        assert!(ClientFirst::parse(&extended.as_bytes()[..FIRST_BYTES_MAX]).is_ok());
        let bad: [(&[u8], Denied); 16] = [
            (b"", BAD),
            (b"n,n=u,r=x", BAD),
            (b"x,,n=u,r=x", BAD),
            (b"p=tls-unique,,n=u,r=x", Denied::ChannelBinding),
            (b"n,b=c,n=u,r=x", BAD),
            (b"n,,m=ext,n=u,r=x", BAD),
            (b"n,,n=,r=x", BAD),
            (b"n,,n=a=b,r=x", BAD),
            (b"n,,n=a=,r=x", BAD),
            (b"n,,n=u", BAD),
            (b"n,,n=u,r=", BAD),
            (b"n,,n=u,r=a b", BAD),
            (b"n,,n=u,r=x,tokenauth=true", Denied::TokenAuth),
            (b"n,,n=\xff,r=x", BAD),
            (long.as_bytes(), BAD),
            (&extended.as_bytes()[..=FIRST_BYTES_MAX], BAD),
        ];
        for (token, why) in bad {
            assert_eq!(ClientFirst::parse(token).err(), Some(why), "{token:?}");
        }
    }

    #[test]
    fn a_last_message_of_another_form_is_refused() {
        assert!(ClientLast::parse(b"c=biws,r=x,p=AAAA").is_ok());
        let bad: [&[u8]; 7] =
            [b"", b"c=biws,r=x", b"c=biws,p=AAAA", b"r=x,c=biws,p=AAAA", b"c=!,r=x,p=AAAA", b"c=biws,r=x,p=!", b"\xff"];
        for token in bad {
            assert_eq!(ClientLast::parse(token).err(), Some(Denied::Malformed("last message")), "{token:?}");
        }
    }

    #[test]
    fn a_name_is_escaped_and_back() {
        for name in ["user", "a,b", "a=b", "=2C", ",=,=", "ü,ü"] {
            assert_eq!(unescaped(&escaped(name)).as_deref(), Some(name));
        }
    }
}
