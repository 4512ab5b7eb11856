//! What is logged, counted and kept.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber, span};

/// Keeps what this thread logs at one level, as long as it lives.
#[must_use]
pub struct Logged {
    lines: Arc<Mutex<Vec<String>>>,
    _guard: DefaultGuard,
}

impl Logged {
    /// Keeps from now on.
    pub fn at(level: Level) -> Self {
        let lines = Arc::default();
        let keeper = Keeper { level, lines: Arc::clone(&lines) };
        Self { lines, _guard: tracing::subscriber::set_default(keeper) }
    }

    /// Lines so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lines.lock().unwrap().len()
    }

    /// Those lines, each with its fields as `name=value`.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

struct Keeper {
    level: Level,
    lines: Arc<Mutex<Vec<String>>>,
}

/// One line.
#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == self.level
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.lines.lock().unwrap().push(line.0);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}
