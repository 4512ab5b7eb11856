//! How far one connection is. No clock of its own: the time is an argument.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use milena_auth::{Exchange, Mechanism};
use milena_wire::kafka_protocol::messages::ApiKey;
use parking_lot::Mutex;

/// Shortest time between two times that a client authenticates again, as in Kafka. Passed: 34.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Who a client is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Name of the user.
    pub name: String,
    /// By what it was proved.
    pub mechanism: Mechanism,
}

/// The state of a connection on a listener that asks for authentication.
#[derive(Debug)]
pub(crate) struct Session {
    /// Set once: whoever authenticates again must be the same.
    principal: OnceLock<Principal>,
    authenticated: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: Option<Running>,
    /// A handshake was answered and its exchange is not over; also while a token of it is checked.
    exchanging: Option<Framing>,
    expires_at: Option<Instant>,
    again_at: Option<Instant>,
}

/// How tokens travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// In SaslAuthenticate requests.
    Requests,
    /// Behind a length alone.
    Bare,
}

/// An exchange that waits for a token.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) mechanism: Mechanism,
    /// `None` when whoever authenticates again has chosen another mechanism than before.
    pub(crate) exchange: Option<Exchange>,
    pub(crate) before: Option<Mechanism>,
}

impl Running {
    /// What a client hears that changes its mechanism, in Kafka's words.
    pub(crate) fn wrong_mechanism(&self) -> String {
        let (now, before) = (self.mechanism, self.before.unwrap_or(self.mechanism));
        format!(
            "SASL mechanism '{now}' requested by client is not supported for re-authentication of mechanism '{before}'"
        )
    }
}

/// What becomes of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    /// It is a token without a header.
    BareToken,
    /// It is a request, to be looked at with [`Session::admits`].
    Request,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is served.
    Served,
    /// It is answered with 34, and the connection ends.
    Illegal,
    /// The connection ends: the client did not authenticate.
    Unauthenticated,
    /// The connection ends: the client did not authenticate again.
    Expired,
}

/// What becomes of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    /// Tokens follow.
    Tokens,
    /// It is answered with 34, and nothing changes: the client is let in, and need not or may not come again yet.
    NotNow,
}

/// What becomes of a client that proved who it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Completed {
    /// It is let in.
    LetIn {
        /// True when it was before.
        again: bool,
    },
    /// It was somebody else before.
    OtherUser {
        /// What it hears, in Kafka's words.
        message: String,
    },
}

impl Session {
    pub(crate) fn new() -> Self {
        Self { principal: OnceLock::new(), authenticated: AtomicBool::new(false), state: Mutex::default() }
    }

    /// True once the client is let in.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.authenticated.load(Ordering::Acquire)
    }

    /// Who the client is, once it is let in.
    pub(crate) fn principal(&self) -> Option<&Principal> {
        self.principal.get()
    }

    /// What the next frame is.
    pub(crate) fn gate(&self) -> Gate {
        match self.state.lock().exchanging {
            Some(Framing::Bare) => Gate::BareToken,
            _ => Gate::Request,
        }
    }

    /// True while an exchange is under way.
    pub(crate) fn expects_token(&self) -> bool {
        self.state.lock().exchanging.is_some()
    }

    /// Whether a request of that key is served now.
    pub(crate) fn admits(&self, key: Option<ApiKey>, now: Instant) -> Admission {
        let state = self.state.lock();
        if state.exchanging.is_some() {
            return match key {
                Some(ApiKey::SaslAuthenticate) => Admission::Served,
                Some(ApiKey::SaslHandshake | ApiKey::ApiVersions) => Admission::Illegal,
                _ => Admission::Unauthenticated,
            };
        }
        if !self.is_authenticated() {
            return match key {
                Some(ApiKey::SaslHandshake | ApiKey::ApiVersions) => Admission::Served,
                _ => Admission::Unauthenticated,
            };
        }
        let expired = state.expires_at.is_some_and(|expires_at| now > expires_at);
        let goes_on = key == Some(ApiKey::SaslHandshake) && state.may_begin_again(now);
        if expired && !goes_on { Admission::Expired } else { Admission::Served }
    }

    /// True when a handshake leads somewhere now: the client is not let in, or may authenticate again.
    pub(crate) fn may_begin(&self, now: Instant) -> bool {
        !self.is_authenticated() || self.state.lock().may_begin_again(now)
    }

    /// A client has chosen a mechanism.
    pub(crate) fn begin(&self, mechanism: Mechanism, framing: Framing, now: Instant) -> Begun {
        let mut state = self.state.lock();
        let before = self.principal().map(|principal| principal.mechanism);
        if before.is_some() {
            if !state.may_begin_again(now) {
                return Begun::NotNow;
            }
            state.again_at = Some(now);
        }
        let same = before.is_none_or(|before| before == mechanism);
        let exchange = same.then(|| Exchange::new(mechanism));
        state.running = Some(Running { mechanism, exchange, before });
        state.exchanging = Some(framing);
        Begun::Tokens
    }

    /// The exchange whose token is to be checked; `None` when there is none.
    pub(crate) fn take(&self) -> Option<Running> {
        self.state.lock().running.take()
    }

    /// The exchange goes on.
    pub(crate) fn put_back(&self, running: Running) {
        self.state.lock().running = Some(running);
    }

    /// The client proved that it is `name`.
    pub(crate) fn accept(
        &self,
        mechanism: Mechanism,
        name: &str,
        lifetime: Option<Duration>,
        now: Instant,
    ) -> Completed {
        let mut state = self.state.lock();
        state.exchanging = None;
        let again = self.principal.get().is_some();
        let principal = self.principal.get_or_init(|| Principal { name: name.to_owned(), mechanism });
        if principal.name != name {
            let before = &principal.name;
            return Completed::OtherUser {
                message: format!("Cannot change principals during re-authentication from User.{before}: User.{name}"),
            };
        }
        state.expires_at = lifetime.map(|lifetime| now + lifetime);
        self.authenticated.store(true, Ordering::Release);
        Completed::LetIn { again }
    }
}

impl State {
    /// Whether a client that is let in may authenticate again.
    fn may_begin_again(&self, now: Instant) -> bool {
        let too_soon = self.again_at.is_some_and(|again_at| now.duration_since(again_at) < AGAIN_AFTER);
        self.expires_at.is_some() && !too_soon
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn let_in(session: &Session, lifetime: Option<Duration>, now: Instant) {
        assert_eq!(session.begin(Mechanism::Plain, Framing::Requests, now), Begun::Tokens);
        assert!(session.take().is_some_and(|running| running.exchange.is_some()));
        let completed = session.accept(Mechanism::Plain, "alice", lifetime, now);
        assert!(matches!(completed, Completed::LetIn { .. }));
    }

    #[test]
    fn before_anybody_is_let_in_only_what_leads_there_is_served() {
        let (session, now) = (Session::new(), Instant::now());
        for key in ApiKey::iter() {
            let leads = matches!(key, ApiKey::ApiVersions | ApiKey::SaslHandshake);
            let expected = if leads { Admission::Served } else { Admission::Unauthenticated };
            assert_eq!(session.admits(Some(key), now), expected, "{key:?}");
        }
        assert_eq!(session.admits(None, now), Admission::Unauthenticated);
    }

    #[test]
    fn behind_a_handshake_only_tokens_are_served() {
        let (session, now) = (Session::new(), Instant::now());
        session.begin(Mechanism::Plain, Framing::Requests, now);
        assert_eq!(session.gate(), Gate::Request);
        for key in ApiKey::iter() {
            let expected = match key {
                ApiKey::SaslAuthenticate => Admission::Served,
                ApiKey::ApiVersions | ApiKey::SaslHandshake => Admission::Illegal,
                _ => Admission::Unauthenticated,
            };
            assert_eq!(session.admits(Some(key), now), expected, "{key:?}");
        }
        let old = Session::new();
        old.begin(Mechanism::Plain, Framing::Bare, now);
        assert_eq!(old.gate(), Gate::BareToken);
    }

    #[test]
    fn whoever_is_let_in_is_served_until_the_session_ends() {
        let (session, now) = (Session::new(), Instant::now());
        let_in(&session, Some(HOUR), now);
        assert_eq!(session.admits(Some(ApiKey::Produce), now + HOUR), Admission::Served);
        let late = now + HOUR + Duration::from_nanos(1);
        assert_eq!(session.admits(Some(ApiKey::Produce), late), Admission::Expired);
        assert_eq!(session.admits(Some(ApiKey::SaslAuthenticate), late), Admission::Expired);
        assert_eq!(session.admits(Some(ApiKey::SaslHandshake), late), Admission::Served);
        let_in(&session, Some(AGAIN_AFTER / 2), late);
        assert_eq!(session.admits(Some(ApiKey::Produce), late + AGAIN_AFTER / 2), Admission::Served);
        // One that is over again, and for which it is too soon to come again, is over.
        let soon = late + AGAIN_AFTER * 3 / 4;
        assert_eq!(session.admits(Some(ApiKey::SaslHandshake), soon), Admission::Expired);
        assert_eq!(session.admits(Some(ApiKey::SaslHandshake), late + AGAIN_AFTER), Admission::Served);
    }

    #[test]
    fn a_session_without_an_end_is_not_begun_again_and_one_with_an_end_once_a_second() {
        let now = Instant::now();
        let endless = Session::new();
        let_in(&endless, None, now);
        assert_eq!(endless.begin(Mechanism::Plain, Framing::Requests, now + HOUR * 100), Begun::NotNow);
        assert_eq!(endless.admits(Some(ApiKey::Produce), now + HOUR * 100), Admission::Served);
        let session = Session::new();
        let_in(&session, Some(HOUR), now);
        let_in(&session, Some(HOUR), now);
        let soon = now + Duration::from_millis(999);
        assert_eq!(session.begin(Mechanism::Plain, Framing::Requests, soon), Begun::NotNow);
        let_in(&session, Some(HOUR), now + AGAIN_AFTER);
    }

    #[test]
    fn nobody_becomes_somebody_else_or_changes_the_mechanism() {
        let (session, now) = (Session::new(), Instant::now());
        let_in(&session, Some(HOUR), now);
        session.begin(Mechanism::Plain, Framing::Requests, now);
        let other = session.accept(Mechanism::Plain, "bob", Some(HOUR), now);
        assert!(matches!(other, Completed::OtherUser { .. }));
        assert_eq!(session.principal().map(|principal| principal.name.as_str()), Some("alice"));
        session.begin(Mechanism::ScramSha256, Framing::Requests, now + AGAIN_AFTER);
        let running = session.take().unwrap();
        assert!(running.exchange.is_none());
        let expected = "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for re-authentication of mechanism 'PLAIN'";
        assert_eq!(running.wrong_mechanism(), expected);
    }
}
