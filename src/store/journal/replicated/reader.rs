//! Reading a replicated log, block by block, along its chain of checksums.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{FuturesOrdered, StreamExt as _};
use tokio::time::{Instant, sleep};

use super::{
    Entry, Extent, Halt, HaltReason, Log, NoAnswer, PAUSE, REPLICATED_BLOCK_BYTES_MAX,
    ReplicatedChain, SILENCE_MAX, TRIES_MAX,
};
use paperbourse_core::faults::{self, Fault};

/// Number of times the newest block is requested without a pause. Two of three replicas may be
/// behind.
const QUICK_TRIES_MAX: u32 = 5;

/// Maximum number of blocks requested ahead.
pub(super) const AHEAD_MAX: usize = 64;

/// Maximum total length of the blocks requested ahead, in bytes, estimated from the blocks read
/// before. A broker disconnects a client with more than 64 MiB pending, and all logs share a
/// connection.
pub(super) const AHEAD_BYTES: usize = 1 << 20;

const _: () = assert!(AHEAD_BYTES >= REPLICATED_BLOCK_BYTES_MAX);

/// Number of times that a block must be missing or damaged before a warning is logged. By then, the
/// replica is more than briefly behind.
const FLAWS_PER_WARNING: u32 = 20;

/// Reads a log in order. Everything up to [`Self::sequence`] has been read.
#[derive(Debug)]
pub struct Reader<L> {
    pub(super) log: L,
    pub(super) chain: ReplicatedChain,
    pub(super) sequence: u64,
}

/// Reason a log cannot be read any further.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReadError {
    /// The log is damaged.
    #[error(transparent)]
    Halted(#[from] Halt),
    /// The brokers do not answer. The reader is unaffected and can continue later.
    #[error("the log {log} cannot be read: {reason}")]
    Unreachable {
        /// The name of the log.
        log: String,
        /// The error of the last try.
        reason: NoAnswer,
    },
}

impl<L: Log> Reader<L> {
    /// Creates a reader that has read up to block `sequence`, where the chain is `chain`. To read
    /// from the beginning, pass sequence 0 and [`ReplicatedChain::start`].
    pub const fn new(log: L, chain: ReplicatedChain, sequence: u64) -> Self {
        Self { log, chain, sequence }
    }

    /// Returns a reader that continues after the record at `position`, which need not exist yet.
    /// The reader's next block is the newest one whose first position is at most `position + 1`;
    /// the header of that block is trusted. Halts if the log begins after the record. `start` is
    /// the chain that the first block of the log continues.
    pub async fn seek(log: L, start: ReplicatedChain, position: u64) -> Result<Self, ReadError> {
        let mut reader = Self::new(log, start, 0);
        let begins_behind = start.mark().position;
        if position < begins_behind {
            let reason = HaltReason::Before { position: begins_behind };
            return Err(reader.halt(1, reason).into());
        }
        let Extent { mut first, last } = reader.extent().await?;
        // Binary search: blocks below `at` begin early enough, blocks from `end` on begin too late.
        let (mut at, mut end) = (first, last + 1);
        while at < end {
            let middle = at + (end - at) / 2;
            let before = match reader.before(middle).await {
                // Blocks were trimmed in the meantime.
                Err(ReadError::Halted(Halt {
                    reason: HaltReason::Trimmed { first: newer },
                    ..
                })) => {
                    (first, at) = (newer, newer);
                    continue;
                }
                before => before?,
            };
            if before.mark().position <= position {
                (reader.chain, reader.sequence) = (before, middle - 1);
                at = middle + 1;
            } else {
                end = middle;
            }
        }
        if reader.sequence + 1 < first {
            return Err(reader.halt(first - 1, HaltReason::Trimmed { first }).into());
        }
        Ok(reader)
    }

    /// Returns the record at `position`, which is at least 1; `None` if the log ends before it.
    pub async fn record(
        log: L,
        start: ReplicatedChain,
        position: u64,
    ) -> Result<Option<Bytes>, ReadError> {
        let mut reader = Self::seek(log, start, position - 1).await?;
        let Extent { last, .. } = reader.extent().await?;
        let mut found = None;
        while found.is_none() && reader.sequence < last {
            let mut see = |_, _: &Bytes, entry: Entry<'_>| {
                if let Entry::Records(records) = entry {
                    let mut records = (records.first_position()..).zip(records.iter());
                    let record = records.find(|&(at, _)| at == position);
                    found = record.map(|(_, record)| Bytes::copy_from_slice(record));
                }
            };
            reader.read_to(reader.sequence + 1, &mut see).await?;
        }
        Ok(found)
    }

    /// Returns the chain that the block with this sequence, which must exist, claims to continue.
    async fn before(&self, sequence: u64) -> Result<ReplicatedChain, ReadError> {
        let mut flaws = 0;
        let began = Instant::now();
        loop {
            match self.log.read(sequence).await {
                Ok(block) => {
                    if let Some(before) = block.and_then(|block| self.chain.before(&block)) {
                        return Ok(before);
                    }
                    flaws += 1;
                    if flaws == TRIES_MAX {
                        return Err(self.lacking(sequence, HaltReason::Missing).await);
                    }
                }
                Err(reason) if began.elapsed() >= SILENCE_MAX => {
                    return Err(self.unreachable(reason));
                }
                Err(_) => {}
            }
            sleep(PAUSE).await;
        }
    }

    /// Returns the sequence of the newest block that has been read.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns the chain after the newest block that has been read.
    pub const fn chain(&self) -> ReplicatedChain {
        self.chain
    }

    /// Returns the log that carries the blocks.
    pub const fn log(&self) -> &L {
        &self.log
    }

    /// Reads to the current end of the log, and passes each block to `show` with its sequence and
    /// bytes.
    pub async fn catch_up(
        &mut self,
        mut show: impl FnMut(u64, &Bytes, Entry<'_>),
    ) -> Result<(), ReadError> {
        let extent = self.extent().await?;
        if extent.first > self.sequence + 1 {
            let reason = HaltReason::Trimmed { first: extent.first };
            return Err(self.halt(self.sequence + 1, reason).into());
        }
        self.read_to(extent.last, &mut show).await
    }

    /// Reads up to block `last`, which must exist, and passes each block to `show`. Requests many
    /// blocks ahead; a block that is missing or damaged is requested again on its own.
    pub(super) async fn read_to(
        &mut self,
        last: u64,
        show: &mut impl FnMut(u64, &Bytes, Entry<'_>),
    ) -> Result<(), ReadError> {
        let mut ahead = FuturesOrdered::new();
        // The length of a block is known only once it has been read.
        let (mut asked, mut bytes_lately) = (self.sequence, REPLICATED_BLOCK_BYTES_MAX);
        while self.sequence < last {
            let count_max = AHEAD_MAX.min(AHEAD_BYTES / bytes_lately);
            while asked < last && ahead.len() < count_max {
                asked += 1;
                ahead.push_back(self.log.read(asked));
            }
            let read = ahead.next().await.expect("the next block was asked for");
            let sequence = self.sequence + 1;
            let mut after = self.chain;
            if let Ok(Some(bytes)) = &read
                && let Ok(entry) = after.read(bytes)
            {
                show(sequence, bytes, entry);
                bytes_lately = bytes.len().max(bytes_lately / 2);
            } else {
                after = self.next(show).await?;
            }
            (self.chain, self.sequence) = (after, sequence);
        }
        Ok(())
    }

    /// Reads the next block, which must exist, and passes it to `show`. Returns the chain after it.
    async fn next(
        &self,
        show: &mut impl FnMut(u64, &Bytes, Entry<'_>),
    ) -> Result<ReplicatedChain, ReadError> {
        let sequence = self.sequence + 1;
        match self.fetch(|bytes, entry| show(sequence, bytes, entry)).await {
            Ok(((), after)) => Ok(after),
            Err(ReadError::Halted(_)) if faults::is_on(Fault::GapSkipped) => self.skip().await,
            Err(error) => Err(error),
        }
    }

    /// Returns a reader at the end of the log, whose chain is taken from the newest block without
    /// reading the blocks before it. Returns `None` if no replica returned that block, which can
    /// happen while further blocks are being written.
    pub(super) async fn at_end(&self) -> Result<Option<Reader<&L>>, ReadError> {
        let extent = self.extent().await?;
        if extent.last == self.sequence {
            return Ok(Some(Reader::new(&self.log, self.chain, self.sequence)));
        }
        for _ in 0..QUICK_TRIES_MAX {
            if let Ok(Some(block)) = self.log.read(extent.last).await
                && let Some(chain) = self.chain.behind(&block)
            {
                return Ok(Some(Reader::new(&self.log, chain, extent.last)));
            }
        }
        Ok(None)
    }

    /// Reads the next block, which must exist, until some replica returns it undamaged. Returns the
    /// result of `see` and the chain after the block. The reader itself does not advance.
    pub(super) async fn fetch<T>(
        &self,
        mut see: impl FnMut(&Bytes, Entry<'_>) -> T,
    ) -> Result<(T, ReplicatedChain), ReadError> {
        let sequence = self.sequence + 1;
        let (mut flaws, mut silences) = (0_u32, 0_u32);
        let began = Instant::now();
        loop {
            match self.log.read(sequence).await {
                Ok(block) => {
                    let reason = match &block {
                        None => HaltReason::Missing,
                        Some(bytes) => {
                            let mut after = self.chain;
                            match after.read(bytes) {
                                Ok(entry) => return Ok((see(bytes, entry), after)),
                                Err(damage) => HaltReason::Damaged(damage),
                            }
                        }
                    };
                    flaws += 1;
                    if flaws == FLAWS_PER_WARNING {
                        let log = self.log.name();
                        tracing::warn!(log, sequence, ?reason, "a replica lacks a block");
                    }
                    if flaws == TRIES_MAX {
                        return Err(self.lacking(sequence, reason).await);
                    }
                }
                Err(reason) => {
                    silences = silences.saturating_add(1);
                    if began.elapsed() >= SILENCE_MAX {
                        return Err(self.unreachable(reason));
                    }
                }
            }
            // A replica may be only briefly behind, so the first pauses are short.
            let tries = flaws.saturating_add(silences).min(6);
            sleep(PAUSE.min(Duration::from_millis(1) * 2_u32.pow(tries))).await;
        }
    }

    /// Returns the error for a block that no replica has intact.
    async fn lacking(&self, sequence: u64, reason: HaltReason) -> ReadError {
        match self.extent().await {
            Ok(Extent { first, .. }) if first > sequence => {
                self.halt(sequence, HaltReason::Trimmed { first }).into()
            }
            Err(error) => error,
            Ok(_) => self.halt(sequence, reason).into(),
        }
    }

    /// Returns the range of blocks in the log. Halts if the log keeps ending before blocks that
    /// were already read.
    pub(super) async fn extent(&self) -> Result<Extent, ReadError> {
        let mut flaws = 0;
        let began = Instant::now();
        loop {
            match self.log.extent().await {
                Ok(extent) if extent.last >= self.sequence => return Ok(extent),
                Ok(extent) => {
                    flaws += 1;
                    if flaws == TRIES_MAX {
                        let reason = HaltReason::Lost { tail: extent.last };
                        return Err(self.halt(self.sequence, reason).into());
                    }
                }
                Err(reason) => {
                    if began.elapsed() >= SILENCE_MAX {
                        return Err(self.unreachable(reason));
                    }
                }
            }
            sleep(PAUSE).await;
        }
    }

    pub(super) fn halt(&self, sequence: u64, reason: HaltReason) -> Halt {
        Halt { log: self.log.name().to_owned(), sequence, reason }
    }

    fn unreachable(&self, reason: NoAnswer) -> ReadError {
        ReadError::Unreachable { log: self.log.name().to_owned(), reason }
    }

    /// Returns the chain as if the next block did not exist, for [`Fault::GapSkipped`].
    async fn skip(&self) -> Result<ReplicatedChain, ReadError> {
        for _ in 0..TRIES_MAX {
            match self.log.read(self.sequence + 2).await {
                Ok(Some(bytes)) if let Some(chain) = self.chain.before(&bytes) => return Ok(chain),
                _ => sleep(PAUSE).await,
            }
        }
        Err(self.halt(self.sequence + 2, HaltReason::Missing).into())
    }
}
