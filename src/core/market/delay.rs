//! The venue's delay of marketable orders, converted to the wall clock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Real time, in millionths: the speed of a venue followed live.
pub(super) const REAL_TIME_MICROS: u64 = 1_000_000;

/// Converts delays from the venue's time to the wall clock's. Shared by all markets.
#[derive(Debug)]
pub(super) struct DelayScale {
    /// Speed of the venue's time, in millionths of real time. At 0, time is stopped and no order is
    /// delayed.
    speed_micros: AtomicU64,
    /// Delay in markets whose venue announces one without its length, in milliseconds of the
    /// venue's time.
    unstated_ms: AtomicU32,
    /// Configured delay that overrides `unstated_ms`, in milliseconds of the venue's time.
    unstated_fixed_ms: Option<u32>,
    /// Whether delays are off, at any speed.
    is_off: bool,
}

impl Default for DelayScale {
    /// Returns a scale on which the venue's time is real time.
    fn default() -> Self {
        Self {
            speed_micros: AtomicU64::new(REAL_TIME_MICROS),
            unstated_ms: AtomicU32::new(0),
            unstated_fixed_ms: None,
            is_off: false,
        }
    }
}

impl DelayScale {
    /// Returns a scale on which no order ever waits.
    pub(super) fn off() -> Self {
        Self { is_off: true, ..Self::default() }
    }

    /// Returns a scale with a fixed delay, in milliseconds, for markets whose venue does not state
    /// one.
    pub(super) fn with_unstated(ms: u32) -> Self {
        Self { unstated_fixed_ms: Some(ms), ..Self::default() }
    }

    /// Sets the unstated delay; see [`super::Markets::set_unstated_delay`].
    pub(super) fn set_unstated_ms(&self, ms: u32) {
        self.unstated_ms.store(ms, Ordering::Relaxed);
    }

    /// Returns the delay in markets whose venue announces one without its length, in milliseconds
    /// of the venue's time.
    pub(super) fn unstated_ms(&self) -> u32 {
        self.unstated_fixed_ms.unwrap_or_else(|| self.unstated_ms.load(Ordering::Relaxed))
    }

    /// Sets the speed of the venue's time; see [`super::Markets::set_delay_speed`].
    pub(super) fn set_speed(&self, speed_micros: u64) {
        self.speed_micros.store(speed_micros, Ordering::Relaxed);
    }

    /// Returns the speed of the venue's time, in millionths of real time; 0 if it is stopped.
    pub(super) fn speed_micros(&self) -> u64 {
        self.speed_micros.load(Ordering::Relaxed)
    }

    /// Converts milliseconds of the venue's time to wall time, rounded to the nearest; 0 if no
    /// order waits.
    #[inline]
    pub(super) fn wall_ms(&self, venue_ms: u32) -> u32 {
        // Most markets have no delay, so this avoids the load.
        if venue_ms == 0 || self.is_off {
            return 0;
        }
        match self.speed_micros.load(Ordering::Relaxed) {
            REAL_TIME_MICROS => venue_ms,
            0 => 0,
            speed => {
                let venue_nanos = u64::from(venue_ms) * REAL_TIME_MICROS;
                let wall_ms = venue_nanos.saturating_add(speed / 2) / speed;
                u32::try_from(wall_ms).unwrap_or(u32::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_pass_in_the_time_of_the_venue() {
        for (speed_micros, venue_ms, wall_ms) in [
            (1_000_000, 250, 250),
            (1_000_000, u32::MAX, u32::MAX),
            (10_000_000, 250, 25),
            (10_000_000, 3_000, 300),
            (10_000_000, 0, 0),
            (500_000, 250, 500),
            // Rounded to the nearest.
            (3_000_000, 250, 83),
            (3_000_000, 251, 84),
            (1_000_000_000, 250, 0),
            (u64::MAX, u32::MAX, 0),
            (1, 10_000, u32::MAX),
            // No order waits for a tape that has ended.
            (0, 10_000, 0),
        ] {
            let scale = DelayScale::default();
            scale.set_speed(speed_micros);
            assert_eq!(scale.wall_ms(venue_ms), wall_ms, "{venue_ms} ms at {speed_micros}");
            let off = DelayScale::off();
            off.set_speed(speed_micros);
            assert_eq!(off.wall_ms(venue_ms), 0);
        }
    }
}
