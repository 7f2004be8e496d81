//! Owning a replicated log: one node, one epoch, one block in flight.

use bytes::Bytes;
use tokio::time::sleep;

use super::{
    Appended, Entry, Halt, HaltReason, Log, NodeName, Notice, NoticeKind, PAUSE, ReadError, Reader,
    ReplicatedBuilder, ReplicatedChain, TRIES_MAX,
};
use paperbourse_core::faults::{self, Fault};

/// Number of tries between two warnings about an append without an answer. The first try is logged
/// too.
const TRIES_PER_WARNING: u32 = 100;

/// Writes a log for one epoch, from its own fence until another node's.
pub struct Owner<L> {
    /// Positioned at the newest acknowledged block.
    pub(super) reader: Reader<L>,
    node: NodeName,
    pub(super) builder: ReplicatedBuilder,
    /// A block that may already be in the log, and the chain after it. Nothing else is sent until
    /// its outcome is known.
    pub(super) unacknowledged: Option<(Bytes, ReplicatedChain)>,
}

/// The outcome of [`Owner::take_at_end`].
pub enum Taking<L> {
    /// The log was taken.
    Taken(Owner<L>),
    /// The log continues past the blocks that the reader has read.
    Outrun(Reader<L>),
}

/// Reason a node no longer owns a log. Its other logs are not affected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Lost {
    /// Another node's block took the place of the owner's next block.
    #[error("the log {log} belongs to {} from block {sequence} on", taker(by.as_ref()))]
    Fenced {
        /// The name of the log.
        log: String,
        /// The sequence of the block that took the place.
        sequence: u64,
        /// The node that took the log; `None` if the block in that place is not a fence.
        by: Option<NodeName>,
    },
    /// The log is damaged.
    #[error(transparent)]
    Halted(#[from] Halt),
}

fn taker(by: Option<&NodeName>) -> String {
    by.map_or_else(|| "another node".to_owned(), |node| format!("the node {node}"))
}

/// Whether the block in the expected place is the one that was sent.
enum Settled {
    Ours,
    Theirs(Option<NodeName>),
}

impl<L: Log> Owner<L> {
    /// Takes the log: appends a fence, which begins an epoch, and passes all blocks up to it to
    /// `show`. Every block that a former owner had acknowledged has been shown when this returns.
    /// Retries until its fence is the newest block, so a current owner that keeps writing can delay
    /// it for a while.
    ///
    /// If the future is dropped, or after an error, the fence may still be in the log; it then
    /// begins an epoch without an owner. The reader returned with an error is positioned at the
    /// newest block that was shown.
    pub async fn take(
        mut reader: Reader<L>,
        node: NodeName,
        mut show: impl FnMut(u64, &Bytes, Entry<'_>),
    ) -> Result<Self, (Reader<L>, ReadError)> {
        // Catch up before the fence: the blocks read now need not be read while no node serves.
        let mut result = reader.catch_up(&mut show).await;
        while result.is_ok() {
            let fence = match place_fence(&reader, &node).await {
                Ok(Some(sequence)) => sequence,
                Ok(None) => {
                    result = reader.catch_up(&mut show).await;
                    continue;
                }
                Err(error) => return Err((reader, error)),
            };
            result = reader.read_to(fence, &mut show).await;
            if result.is_ok() {
                let builder = ReplicatedBuilder::new();
                return Ok(Self { reader, node, builder, unacknowledged: None });
            }
        }
        Err((reader, result.expect_err("the loop ends with an error")))
    }

    /// Takes the log and begins an epoch, provided that the reader is at the end of the log.
    pub async fn take_at_end(reader: Reader<L>, node: NodeName) -> Result<Taking<L>, Halt> {
        let mut after = reader.chain;
        let fence = after.seal_notice(&notice(NoticeKind::Fence, &node));
        Ok(match settle(&reader, &fence).await? {
            Settled::Ours => Taking::Taken(Self {
                reader: Reader::new(reader.log, after, reader.sequence + 1),
                node,
                builder: ReplicatedBuilder::new(),
                unacknowledged: None,
            }),
            Settled::Theirs(_) if faults::is_on(Fault::FenceUnread) => {
                return Self::take_unread(reader, node).await;
            }
            Settled::Theirs(_) => Taking::Outrun(reader),
        })
    }

    /// Takes the log at its end without reading the blocks before it, for [`Fault::FenceUnread`].
    async fn take_unread(reader: Reader<L>, node: NodeName) -> Result<Taking<L>, Halt> {
        let Ok(Some(fence)) = place_fence(&reader, &node).await else {
            return Ok(Taking::Outrun(reader));
        };
        let Ok(Some(end)) = reader.at_end().await else { return Ok(Taking::Outrun(reader)) };
        let (chain, sequence) = (end.chain, end.sequence);
        if sequence != fence {
            return Ok(Taking::Outrun(reader));
        }
        let reader = Reader::new(reader.log, chain, sequence);
        let builder = ReplicatedBuilder::new();
        Ok(Taking::Taken(Self { reader, node, builder, unacknowledged: None }))
    }

    /// Returns the owner's epoch, which started with its fence.
    pub const fn epoch(&self) -> u64 {
        self.reader.chain.mark().epoch
    }

    /// Returns the sequence of the newest acknowledged block.
    pub const fn sequence(&self) -> u64 {
        self.reader.sequence
    }

    /// Returns the position of the newest acknowledged record.
    pub const fn position(&self) -> u64 {
        self.reader.chain.mark().position
    }

    /// Adds a record to the next block. If the block is full, returns false without adding it: call
    /// [`Self::flush`] first.
    pub fn push(&mut self, record: &[u8]) -> bool {
        self.builder.push(record)
    }

    /// Appends the pushed records. Returns once they are on the disks of a majority, however long
    /// that takes, or once the log is lost. On success, [`Self::position`] is that of the last
    /// record.
    ///
    /// If the future is dropped, the block may be in the log; the next call first finds out whether
    /// it is.
    pub async fn flush(&mut self) -> Result<(), Lost> {
        self.send().await?;
        if !self.builder.is_empty() {
            let mut builder = std::mem::take(&mut self.builder);
            self.append(|chain| builder.seal(chain)).await?;
        }
        Ok(())
    }

    /// Appends the block that `seal` makes, as [`Self::flush`] does for the pushed records.
    pub async fn append(
        &mut self,
        seal: impl FnOnce(&mut ReplicatedChain) -> Bytes,
    ) -> Result<(), Lost> {
        self.send().await?;
        assert!(self.unacknowledged.is_none(), "at most one block is in flight");
        let mut after = self.reader.chain;
        let block = seal(&mut after);
        self.unacknowledged = Some((block, after));
        self.send().await
    }

    /// Appends a heartbeat. It shows other nodes that the owner is alive, and confirms that this
    /// node still owns the log.
    pub async fn beat(&mut self) -> Result<(), Lost> {
        let heartbeat = notice(NoticeKind::Heartbeat, &self.node);
        self.append(|chain| chain.seal_notice(&heartbeat)).await
    }

    /// Gives up the log, so that the next owner need not wait. Pushed records are appended first.
    pub async fn release(mut self) -> Result<Reader<L>, (Reader<L>, Lost)> {
        let mut result = self.flush().await;
        if result.is_ok() {
            let release = notice(NoticeKind::Release, &self.node);
            result = self.append(|chain| chain.seal_notice(&release)).await;
        }
        match result {
            Ok(()) => {
                self.reader.log.announce_release().await;
                Ok(self.reader)
            }
            Err(lost) => Err((self.reader, lost)),
        }
    }

    /// Turns an owner that has lost the log into a reader at the newest acknowledged block.
    pub fn into_reader(self) -> Reader<L> {
        self.reader
    }

    /// Sends the unacknowledged block until it is known whether it is in the log.
    async fn send(&mut self) -> Result<(), Lost> {
        let Some((block, after)) = &self.unacknowledged else { return Ok(()) };
        match settle(&self.reader, block).await? {
            Settled::Ours => {
                self.reader.chain = *after;
                self.reader.sequence += 1;
                self.unacknowledged = None;
                Ok(())
            }
            Settled::Theirs(by) => Err(Lost::Fenced {
                log: self.reader.log.name().to_owned(),
                sequence: self.reader.sequence + 1,
                by,
            }),
        }
    }
}

fn notice(kind: NoticeKind, node: &NodeName) -> Notice {
    // Without a nonce, the fences of two attempts would be the same bytes.
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).expect("the operating system gives random numbers");
    Notice { kind, node: node.clone(), nonce }
}

/// Appends a fence at the end of the log. Returns its sequence; `None` if another node was faster.
/// The fence vouches for the newest block and, through it, for the earlier ones, which are read
/// later.
async fn place_fence<L: Log>(
    reader: &Reader<L>,
    node: &NodeName,
) -> Result<Option<u64>, ReadError> {
    let Some(end) = reader.at_end().await? else { return Ok(None) };
    let fence = end.chain().seal_notice(&notice(NoticeKind::Fence, node));
    match settle(&end, &fence).await? {
        Settled::Ours => Ok(Some(end.sequence + 1)),
        Settled::Theirs(_) => Ok(None),
    }
}

/// Appends `block` after the reader's newest block. Resends the same bytes with the same condition
/// until it is known which block is in that place.
async fn settle<L: Log>(reader: &Reader<L>, block: &Bytes) -> Result<Settled, Halt> {
    let (mut unknown_count, mut short_count) = (0, 0);
    loop {
        let reason = match reader.log.append(reader.sequence, block.clone()).await {
            Appended::Acknowledged => return Ok(Settled::Ours),
            Appended::Unknown(_) if faults::is_on(Fault::UnknownTakenForAcknowledged) => {
                return Ok(Settled::Ours);
            }
            Appended::Unknown(reason) => reason.0,
            Appended::Stale { tail } if tail < reader.sequence => {
                short_count += 1;
                if short_count == TRIES_MAX {
                    return Err(reader.halt(reader.sequence, HaltReason::Lost { tail }));
                }
                format!("the log ends at block {tail}")
            }
            // The broker may count a block that is not in the log and may never be.
            Appended::Stale { .. } => match reader.extent().await {
                // Other nodes have long continued the log. Our block may be in it, but the log is
                // not ours.
                Ok(extent) if extent.first > reader.sequence + 1 => {
                    return Ok(Settled::Theirs(None));
                }
                Ok(extent) if extent.last > reader.sequence => {
                    match in_place(reader, block).await {
                        Ok(settled) => return Ok(settled),
                        Err(ReadError::Halted(halt)) => return Err(halt),
                        Err(error) => error.to_string(),
                    }
                }
                Ok(_) => "a block is on its way into the log".to_owned(),
                Err(ReadError::Halted(halt)) => return Err(halt),
                Err(error) => error.to_string(),
            },
        };
        if unknown_count % TRIES_PER_WARNING == 0 {
            let (log, sequence) = (reader.log.name(), reader.sequence + 1);
            tracing::warn!(
                log,
                sequence,
                reason,
                "what an append did is unknown, sending it again"
            );
        }
        unknown_count += 1;
        sleep(PAUSE).await;
    }
}

/// Reads the block after the reader's newest one and compares it with `block`.
async fn in_place<L: Log>(reader: &Reader<L>, block: &Bytes) -> Result<Settled, ReadError> {
    let see = |bytes: &Bytes, entry: Entry<'_>| match entry {
        _ if bytes == block => Settled::Ours,
        Entry::Notice(Notice { kind: NoticeKind::Fence, node, .. }) => Settled::Theirs(Some(node)),
        _ => Settled::Theirs(None),
    };
    Ok(reader.fetch(see).await?.0)
}
