//! Where a broker is.

use std::fmt;
use std::str::FromStr;

use super::ClientError;

/// Port of Kafka where an address does not say.
const DEFAULT_PORT: u16 = 9092;

/// Host and port of a broker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Name or address, IPv6 without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl Address {
    /// Reads a list as clients are configured with it: addresses with commas between them.
    ///
    /// # Errors
    /// The first one that is no address, or an empty list.
    pub fn parse_list(list: &str) -> Result<Vec<Self>, ClientError> {
        let addresses: Vec<_> =
            list.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::parse).collect::<Result<_, _>>()?;
        if addresses.is_empty() { Err(ClientError::NoAddress { text: list.to_owned() }) } else { Ok(addresses) }
    }
}

impl FromStr for Address {
    type Err = ClientError;

    fn from_str(text: &str) -> Result<Self, ClientError> {
        let wrong = || ClientError::NoAddress { text: text.chars().take(200).collect() };
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
                (host, if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or_else(wrong)?) })
            }
            // More than one colon and no brackets is an IPv6 address without a port.
            None => match text.split_once(':') {
                Some((host, port)) if !port.contains(':') => (host, Some(port)),
                _ => (text, None),
            },
        };
        let port = port.map_or(Ok(DEFAULT_PORT), |port| port.parse().map_err(|_| wrong()))?;
        if host.is_empty() || host.contains(['/', ' ', '[', ']']) {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(String, u16)> {
        text.parse().ok().map(|Address { host, port }| (host, port))
    }

    #[test]
    fn addresses_are_read_with_and_without_a_port() {
        for (text, host, port) in [
            ("localhost:19092", "localhost", 19092),
            ("kafka.example", "kafka.example", 9092),
            ("[::1]:9093", "::1", 9093),
            ("[::1]", "::1", 9092),
            ("::1", "::1", 9092),
        ] {
            assert_eq!(parsed(text), Some((host.to_owned(), port)), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", ":9092", "host:", "host:99999", "http://host", "[::1", "[::1]9092", "a b:1"] {
            assert_eq!(parsed(text), None, "{text}");
        }
        assert!(Address::parse_list(" , ").is_err());
    }

    #[test]
    fn a_list_and_its_text_agree() {
        let list = Address::parse_list("a:1, [::1]:2,").unwrap();
        assert_eq!(list.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a:1", "[::1]:2"]);
    }
}
