//! Addresses like `iggy://user@host:8090`.

use secrecy::SecretString;

/// The port that a server listens on when an address does not say.
pub const DEFAULT_PORT: u16 = 8090;

const SCHEME: &str = "iggy://";

/// An address, taken apart.
#[derive(Debug, Clone)]
pub struct IggyUrl {
    /// User name, if it says one.
    pub user: Option<String>,
    /// Password, if it says one. Command lines are seen by everybody on a machine, so it has no place there.
    pub password: Option<SecretString>,
    /// One or more `host:port`.
    pub servers: Vec<String>,
}

impl IggyUrl {
    /// Takes `iggy://[user[:password]@]host[:port][,host[:port]]...` apart. Nothing is decoded: names and
    /// passwords stand as they are, up to the last `@`.
    ///
    /// # Errors
    /// What is wrong with it, without repeating the address, which may hold a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| format!("it does not begin with {SCHEME}"))?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (login, hosts) = match rest.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, rest),
        };
        let (user, password) = match login.map(|login| login.split_once(':').ok_or(login)) {
            Some(Ok((user, password))) => (Some(user), Some(password)),
            Some(Err(user)) => (Some(user), None),
            None => (None, None),
        };
        if user.is_some_and(str::is_empty) {
            return Err("it has no user before the @".to_owned());
        }
        let servers = hosts.split(',').map(server).collect::<Result<Vec<_>, _>>()?;
        let password = password.map(|password| SecretString::from(password.to_owned()));
        Ok(Self { user: user.map(str::to_owned), password, servers })
    }
}

/// `host:port`, with the default port filled in. An IPv6 address stands in brackets.
fn server(text: &str) -> Result<String, String> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let bracketed = host.starts_with('[') && host.ends_with(']') && host.len() > 2;
    if host.is_empty() || (host.contains([':', '[', ']', '/']) && !bracketed) {
        return Err("a host is missing or malformed; write host:port, and an IPv6 address in brackets".to_owned());
    }
    let port = match port {
        Some(port) => {
            port.parse::<u16>().ok().filter(|port| *port > 0).ok_or("a port is not a number of 1 to 65535")?
        }
        None => DEFAULT_PORT,
    };
    Ok(format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn servers(text: &str) -> Vec<String> {
        IggyUrl::parse(text).unwrap().servers
    }

    #[test]
    fn user_password_host_and_port_are_told_apart() {
        let url = IggyUrl::parse("iggy://me:p@ss:word@example.org:9000").unwrap();
        assert_eq!(url.user.as_deref(), Some("me"));
        assert_eq!(url.password.unwrap().expose_secret(), "p@ss:word");
        assert_eq!(url.servers, ["example.org:9000"]);
        let url = IggyUrl::parse("iggy://me@example.org").unwrap();
        assert!(url.user.as_deref() == Some("me") && url.password.is_none());
    }

    #[test]
    fn several_servers_and_default_ports_are_understood() {
        assert_eq!(servers("iggy://a,b:1,[::1],[fd00::1]:2/"), ["a:8090", "b:1", "[::1]:8090", "[fd00::1]:2"]);
    }

    #[test]
    fn what_is_no_address_is_told_without_repeating_it() {
        for text in
            ["", "kafka://secret@a", "iggy://", "iggy://:secret@a", "iggy://a:secret", "iggy://a:0", "iggy://::1"]
        {
            let error = IggyUrl::parse(text).unwrap_err();
            assert!(!error.contains("secret"), "{text}: {error}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let shown = format!("{:?}", IggyUrl::parse("iggy://me:secret@a").unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }
}
