//! The file of users: one line for each user and hash, `name:SCRAM-SHA-512$iterations:salt$StoredKey:ServerKey`. Empty
//! lines and lines that begin with `#` are for people, and stay where they are when the file is changed.

use std::collections::HashMap;

use crate::prepare::{self, Unusable};
use crate::verifier::{BadVerifier, Hash, Verifier};

/// Most users of a file. Passed: the file is refused.
pub const USERS_MAX: usize = 100_000;

/// What is between a name and its verifier. No verifier holds it, so a name may hold colons.
const SEPARATOR: &str = ":SCRAM-SHA-";

/// Users and what is kept of their passwords. Empty by default: then nobody can log in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Users {
    by_name: HashMap<String, User>,
    /// The first verifiers of the file, which those of users that do not exist look like.
    models: User,
}

/// The verifiers of one user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    sha256: Option<Verifier>,
    sha512: Option<Verifier>,
}

impl User {
    /// The verifier of that hash.
    #[must_use]
    pub fn verifier(&self, hash: Hash) -> Option<&Verifier> {
        match hash {
            Hash::Sha256 => self.sha256.as_ref(),
            Hash::Sha512 => self.sha512.as_ref(),
        }
    }

    fn place(&mut self, hash: Hash) -> &mut Option<Verifier> {
        match hash {
            Hash::Sha256 => &mut self.sha256,
            Hash::Sha512 => &mut self.sha512,
        }
    }
}

/// What a line of the file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line<'a> {
    ForPeople,
    Entry { name: &'a str, verifier: &'a str },
    Neither,
}

/// Why a file of users cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UsersError {
    /// A line is none of the forms.
    #[error("line {line} must look like NAME:SCRAM-SHA-512$4096:SALT$STOREDKEY:SERVERKEY; `milena users add` makes it")]
    Form {
        /// Number of the line, from 1.
        line: usize,
    },
    /// A verifier is out of range.
    #[error("line {line}: {source}")]
    Verifier {
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        source: BadVerifier,
    },
    /// A name cannot be used.
    #[error("line {line}: the name cannot be used, {source}")]
    Name {
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        source: Unusable,
    },
    /// A user has two verifiers of one hash.
    #[error("line {line}: this user has a {mechanism} entry already")]
    Twice {
        /// Number of the line, from 1.
        line: usize,
        /// Its mechanism.
        mechanism: &'static str,
    },
    /// There are too many.
    #[error("more than {USERS_MAX} users")]
    TooMany,
}

/// Checks a name that is to be in the file.
///
/// # Errors
/// When clients could not use it, or the file could not hold it.
pub fn check_name(name: &str) -> Result<(), Unusable> {
    let fits = !name.starts_with('#') && name.trim() == name && !name.contains(SEPARATOR);
    prepare::check(name).and(if fits { Ok(()) } else { Err(Unusable::Forbidden) })
}

impl Users {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(text: &str) -> Result<Self, UsersError> {
        let mut users = Self::default();
        for (line, content) in (1..).zip(text.lines()) {
            match read_line(content) {
                Line::ForPeople => {}
                Line::Neither => return Err(UsersError::Form { line }),
                Line::Entry { name, verifier } => {
                    check_name(name).map_err(|source| UsersError::Name { line, source })?;
                    let verifier = verifier.parse().map_err(|source| UsersError::Verifier { line, source })?;
                    users.add(name, verifier, line)?;
                }
            }
        }
        Ok(users)
    }

    /// A single user, whose password is known in both hashes.
    #[must_use]
    pub fn single(name: &str, verifiers: [Verifier; 2]) -> Self {
        let mut users = Self::default();
        for verifier in verifiers {
            users.put(name, verifier);
        }
        users
    }

    fn add(&mut self, name: &str, verifier: Verifier, line: usize) -> Result<(), UsersError> {
        let hash = verifier.hash();
        if self.by_name.get(name).is_some_and(|user| user.verifier(hash).is_some()) {
            return Err(UsersError::Twice { line, mechanism: hash.mechanism() });
        }
        if self.by_name.len() >= USERS_MAX && !self.by_name.contains_key(name) {
            return Err(UsersError::TooMany);
        }
        self.put(name, verifier);
        Ok(())
    }

    fn put(&mut self, name: &str, verifier: Verifier) {
        let hash = verifier.hash();
        self.models.place(hash).get_or_insert_with(|| verifier.clone());
        *self.by_name.entry(name.to_owned()).or_default().place(hash) = Some(verifier);
    }

    /// These users, and those of `other` whose names are not among them.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        for (name, user) in other.by_name {
            self.by_name.entry(name).or_insert(user);
        }
        for hash in Hash::ALL {
            if let Some(model) = other.models.verifier(hash) {
                self.models.place(hash).get_or_insert_with(|| model.clone());
            }
        }
        self
    }

    /// The user of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&User> {
        self.by_name.get(name)
    }

    /// All users, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &User)> {
        self.by_name.iter().map(|(name, user)| (name.as_str(), user))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// True when nobody can log in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The verifier of a user for SCRAM, and whether there is such a user. One that does not exist gets a verifier that
    /// looks like the others and that no password matches; `None` only where no user has one of this hash.
    pub(crate) fn scram(&self, name: &str, hash: Hash) -> Option<(Verifier, bool)> {
        match self.get(name).and_then(|user| user.verifier(hash)) {
            Some(verifier) => Some((verifier.clone(), true)),
            None => self.models.verifier(hash).map(|model| (model.decoy(model.secret(), name), false)),
        }
    }

    /// Checks name and password, both prepared. Takes as long for a user that does not exist.
    #[must_use]
    pub fn is(&self, name: &str, password: &str) -> bool {
        let any = |user: &User| user.verifier(Hash::Sha512).or(user.verifier(Hash::Sha256)).cloned();
        match self.get(name).and_then(any) {
            Some(verifier) => verifier.matches(password),
            None => {
                let _ = any(&self.models).map(|model| model.decoy(model.secret(), name).matches(password));
                false
            }
        }
    }
}

fn read_line(line: &str) -> Line<'_> {
    if line.trim().is_empty() || line.starts_with('#') {
        return Line::ForPeople;
    }
    let split = line.rfind(SEPARATOR).and_then(|at| Some((line.get(..at)?, line.get(at + 1..)?)));
    split.map_or(Line::Neither, |(name, verifier)| Line::Entry { name, verifier: verifier.trim_end() })
}

/// The text of a file with these verifiers of a user in place of those of the same hashes it had.
#[must_use]
pub fn with(text: &str, name: &str, verifiers: &[Verifier]) -> String {
    let mut left: Vec<&Verifier> = verifiers.iter().collect();
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let Line::Entry { name: found, verifier } = read_line(line) else {
            lines.push(line.to_owned());
            continue;
        };
        let replaced = left.iter().position(|new| found == name && verifier.starts_with(new.hash().mechanism()));
        match replaced {
            Some(at) => lines.push(format!("{name}:{}", left.remove(at))),
            None => lines.push(line.to_owned()),
        }
    }
    lines.extend(left.into_iter().map(|verifier| format!("{name}:{verifier}")));
    lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
}

/// The text of a file without a user, or without its verifier of one hash.
#[must_use]
pub fn without(text: &str, name: &str, hash: Option<Hash>) -> String {
    let goes = |line: &str| match read_line(line) {
        Line::Entry { name: found, verifier } => {
            found == name && hash.is_none_or(|hash| verifier.starts_with(hash.mechanism()))
        }
        Line::ForPeople | Line::Neither => false,
    };
    text.lines().filter(|line| !goes(line)).flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
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
}
