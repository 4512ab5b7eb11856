//! Answers as trees: what Rust prints of a decoded message, read back, so that one comparison serves every message.

use std::iter::Peekable;
use std::str::Chars;

/// A field, a list or a struct of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Tree {
    /// Null, which is not the same as an empty list or text.
    Null,
    /// Anything that is neither text nor bytes: a number, a truth value, an id.
    Atom(String),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A list.
    List(Vec<Tree>),
    /// Fields by name, in their order; a map is one too.
    Struct(Vec<(String, Tree)>),
}

impl Tree {
    /// The tree of a message, from its derived `Debug`. Values in `Some` and in tuples of one stand for themselves.
    ///
    /// # Panics
    /// When the text is not of that form.
    #[must_use]
    pub fn of(message: &impl std::fmt::Debug) -> Self {
        let text = format!("{message:?}");
        let mut reader = Reader { rest: text.chars().peekable() };
        let tree = reader.value();
        assert!(reader.rest.next().is_none(), "something is left behind the value: {text}");
        tree
    }

    /// Field of a struct.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Self> {
        let Self::Struct(fields) = self else { return None };
        fields.iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }

    /// In one line, shortened.
    #[must_use]
    pub fn line(&self) -> String {
        const CHARS_MAX: usize = 100;
        let line = match self {
            Self::Null => "null".to_owned(),
            Self::Atom(text) => text.clone(),
            Self::Text(text) => format!("\"{text}\""),
            Self::Bytes(bytes) => format!("b\"{}\"", bytes.escape_ascii()),
            Self::List(values) => {
                format!("[{}]", values.iter().map(Self::line).collect::<Vec<_>>().join(", "))
            }
            Self::Struct(fields) => {
                let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}: {}", value.line())).collect();
                format!("{{{}}}", fields.join(", "))
            }
        };
        if line.chars().count() <= CHARS_MAX {
            return line;
        }
        line.chars().take(CHARS_MAX).chain("...".chars()).collect()
    }
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
}

impl Reader<'_> {
    fn value(&mut self) -> Tree {
        match self.rest.peek() {
            Some('"') => Tree::Text(self.quoted()),
            Some('[') => Tree::List(self.list('[', ']')),
            Some('{') => Tree::Struct(self.fields()),
            Some('(') => Tree::List(self.list('(', ')')),
            _ => self.named(),
        }
    }

    /// A word, and what belongs to it.
    fn named(&mut self) -> Tree {
        let mut word = String::new();
        while let Some(&next) = self.rest.peek() {
            match next {
                '"' if word == "b" => return Tree::Bytes(unescape(&self.escaped())),
                '(' => {
                    let mut values = self.list('(', ')');
                    return if values.len() == 1 { values.remove(0) } else { Tree::List(values) };
                }
                ',' | ')' | ']' | '}' | ':' => break,
                ' ' => {
                    // A struct goes on behind a space; behind other words it belongs to what is around them.
                    if self.rest.clone().nth(1) != Some('{') {
                        break;
                    }
                    self.rest.next();
                    return Tree::Struct(self.fields());
                }
                _ => word.push(next),
            }
            self.rest.next();
        }
        if word == "None" { Tree::Null } else { Tree::Atom(word) }
    }

    fn list(&mut self, open: char, close: char) -> Vec<Tree> {
        self.expect(open);
        let mut values = Vec::new();
        while !self.ends(close) {
            values.push(self.value());
        }
        values
    }

    fn fields(&mut self) -> Vec<(String, Tree)> {
        self.expect('{');
        let mut fields = Vec::new();
        while !self.ends('}') {
            let name = match self.value() {
                Tree::Atom(name) | Tree::Text(name) => name,
                other => other.line(),
            };
            self.expect(':');
            self.expect(' ');
            fields.push((name, self.value()));
        }
        fields
    }

    /// Passes over what separates values, and over the end of a list if it is there.
    fn ends(&mut self, close: char) -> bool {
        while self.rest.next_if(|next| matches!(next, ',' | ' ')).is_some() {}
        self.rest.next_if_eq(&close).is_some()
    }

    fn expect(&mut self, wanted: char) {
        assert_eq!(self.rest.next(), Some(wanted), "of {:?}", self.rest.clone().take(40).collect::<String>());
    }

    fn quoted(&mut self) -> String {
        let escaped = self.escaped();
        // Text keeps what is not ASCII as it is.
        let mut text = String::new();
        let mut rest = escaped.chars();
        while let Some(next) = rest.next() {
            match (next, rest.clone().next()) {
                ('\\', Some(quote @ ('"' | '\'' | '\\'))) => {
                    rest.next();
                    text.push(quote);
                }
                _ => text.push(next),
            }
        }
        text
    }

    /// What stands between quotes, as it was printed.
    fn escaped(&mut self) -> String {
        self.expect('"');
        let mut text = String::new();
        while let Some(next) = self.rest.next() {
            match next {
                '"' => return text,
                '\\' => {
                    text.push(next);
                    text.extend(self.rest.next());
                }
                _ => text.push(next),
            }
        }
        panic!("a text without an end: {text}");
    }
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.chars();
    while let Some(next) = rest.next() {
        let byte = match next {
            '\\' => match rest.next() {
                Some('x') => {
                    let digits: String = rest.by_ref().take(2).collect();
                    u8::from_str_radix(&digits, 16).expect("two digits")
                }
                Some('n') => b'\n',
                Some('r') => b'\r',
                Some('t') => b'\t',
                Some('0') => 0,
                Some(other) => u8::try_from(other).expect("one byte"),
                None => panic!("an escape at the end of {text}"),
            },
            other => u8::try_from(other).expect("one byte"),
        };
        bytes.push(byte);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use milena_wire::kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
    use milena_wire::kafka_protocol::messages::{BrokerId, FetchResponse, TopicName};

    use super::*;

    #[test]
    fn a_message_comes_back_field_by_field() {
        let bytes: Vec<u8> = (0..=255).collect();
        let partition = PartitionData::default().with_records(Some(bytes.clone().into()));
        let topic = FetchableTopicResponse::default()
            .with_topic(TopicName("a \"name\", {with} all: \\ [of it]".into()))
            .with_partitions(vec![partition]);
        let tree = Tree::of(&FetchResponse::default().with_responses(vec![topic]));
        let Some(Tree::List(topics)) = tree.field("responses") else { panic!("{tree:?}") };
        assert_eq!(topics[0].field("topic"), Some(&Tree::Text("a \"name\", {with} all: \\ [of it]".to_owned())));
        let Some(Tree::List(partitions)) = topics[0].field("partitions") else { panic!("{tree:?}") };
        assert_eq!(partitions[0].field("records"), Some(&Tree::Bytes(bytes)));
        assert_eq!(partitions[0].field("preferred_read_replica"), Some(&Tree::of(&BrokerId(-1))));
        assert_eq!(tree.field("unknown_tagged_fields"), Some(&Tree::Struct(Vec::new())));
    }

    #[test]
    fn null_is_not_empty() {
        assert_ne!(Tree::of(&Some(Vec::<i32>::new())), Tree::of(&None::<Vec<i32>>));
        assert_ne!(Tree::of(&Some("")), Tree::of(&None::<&str>));
    }
}
