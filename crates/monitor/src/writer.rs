//! Families of metrics in the text form.

use std::fmt;

use milena_server::metrics::HistogramSnapshot;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;

/// Names and values of the labels of one series.
pub(crate) type Labels<'v, const N: usize> = [(&'static str, &'v str); N];

/// A histogram whose values are nanoseconds is shown in seconds.
pub(crate) const NANOS: f64 = 1e-9;
/// A histogram that is shown as it was counted.
pub(crate) const ONES: f64 = 1.0;

/// Writes one family after another. A family is written, with its help and type, even when it has no series now.
pub(crate) struct Families<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl<'a> Families<'a> {
    pub(crate) fn new(encoder: DescriptorEncoder<'a>) -> Self {
        Self { encoder }
    }

    /// A counter without labels. The name ends with `_total`.
    pub(crate) fn counter(&mut self, name: &'static str, help: &str, value: u64) -> fmt::Result {
        self.counters(name, help, [([], value)])
    }

    /// A counter with labels.
    pub(crate) fn counters<'v, const N: usize>(
        &mut self,
        name: &'static str,
        help: &str,
        series: impl IntoIterator<Item = (Labels<'v, N>, u64)>,
    ) -> fmt::Result {
        // The encoder puts the ending on.
        let stem = name.strip_suffix("_total").unwrap_or(name);
        let mut family = self.encoder.encode_descriptor(stem, help, None, MetricType::Counter)?;
        for (labels, value) in series {
            let exemplar = None::<&Exemplar<NoLabelSet, f64>>;
            family.encode_family(&labels)?.encode_counter(&value, exemplar)?;
        }
        Ok(())
    }

    /// A counter of seconds.
    pub(crate) fn counter_seconds(&mut self, name: &'static str, help: &str, seconds: Option<f64>) -> fmt::Result {
        let stem = name.strip_suffix("_total").unwrap_or(name);
        let mut family = self.encoder.encode_descriptor(stem, help, None, MetricType::Counter)?;
        let exemplar = None::<&Exemplar<NoLabelSet, f64>>;
        seconds.map_or(Ok(()), |seconds| family.encode_counter(&seconds, exemplar))
    }

    /// A gauge without labels.
    pub(crate) fn gauge(&mut self, name: &'static str, help: &str, value: u64) -> fmt::Result {
        self.gauges(name, help, [([], value)])
    }

    /// A gauge with labels.
    pub(crate) fn gauges<'v, const N: usize>(
        &mut self,
        name: &'static str,
        help: &str,
        series: impl IntoIterator<Item = (Labels<'v, N>, u64)>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in series {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// A gauge that is no whole number.
    pub(crate) fn gauge_f64(&mut self, name: &'static str, help: &str, value: f64) -> fmt::Result {
        self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    /// A histogram with labels, whose values are multiplied by `unit`.
    pub(crate) fn histograms<'v, const N: usize>(
        &mut self,
        name: &'static str,
        help: &str,
        unit: f64,
        series: impl IntoIterator<Item = (Labels<'v, N>, HistogramSnapshot)>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, snapshot) in series {
            let bounds = snapshot.bounds.iter().map(|bound| in_unit(*bound, unit)).chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(snapshot.counts.iter().copied()).collect();
            let count = snapshot.counts.iter().sum();
            let sum = in_unit(snapshot.sum, unit);
            family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }
}

/// A number of units, rounded where the arithmetic of floats leaves 0.00025000000000000001.
#[expect(clippy::cast_precision_loss, reason = "above 2^53 nobody counts single ones")]
fn in_unit(value: u64, unit: f64) -> f64 {
    let value = value as f64;
    // To divide by a power of ten that is exact gives the nearest float; to multiply by 1e-9 does not.
    if unit < 1.0 { value / (1.0 / unit).round() } else { value * unit }
}
