//! What is logged, counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber, span};

/// Counts what this thread logs at one level, as long as it lives.
#[must_use]
pub struct Logged {
    count: Arc<AtomicUsize>,
    _guard: DefaultGuard,
}

impl Logged {
    /// Counts from now on.
    pub fn at(level: Level) -> Self {
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Counter { level, count: Arc::clone(&count) };
        Self { count, _guard: tracing::subscriber::set_default(counter) }
    }

    /// Lines so far.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

struct Counter {
    level: Level,
    count: Arc<AtomicUsize>,
}

impl Subscriber for Counter {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == self.level
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &Event<'_>) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}
