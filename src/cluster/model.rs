//! A model of log takeover, checked in every state within a bound.
//!
//! The cluster simulation runs the real code through a sample of histories. The model has only the
//! rules of [`standby`](super::standby), [`seat`](super::seat) and [`lease`](super::lease), but
//! explores every history of three nodes that own a log, take it from each other, crash and
//! restart.
//!
//! - **Messages.** A block that was sent is in flight until its place in the log is taken. It may
//!   arrive at any later moment, even after its sender has crashed, or never, so lost, delayed and
//!   repeated messages need no steps of their own. At any later moment, or never, the sender learns
//!   what is in that place, whether from an answer or by reading the log.
//! - **Judgement.** A node that does not own the log may take it at any moment: from an owner that
//!   is silent, whether alive or gone, or from its own former process. It has read the log up to
//!   the place of its fence, and waits out the former lease unless the block below the fence is a
//!   release.
//! - **Clocks.** All clocks are at their worst: a lease ends by a clock that is a tenth slow, and a
//!   wait by one that is exact. Any other clocks give a shorter lease or a longer wait.
//! - **Crashes.** A node that crashes loses its memory. Its disk holds a prefix of the log (see
//!   [`Promise::Held`]), and the node reads the rest before it takes the log.
//!
//! The log is never trimmed or damaged here, and no answer is false. Each [`Mistake`] breaks one
//! rule, to show that the search finds the violation that the rule prevents.

mod search;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::lease::{LEASE, LEASE_WAIT};
use search::{Found, search};

const NODES: usize = 3;

/// Number of writes that clients request.
const WRITES: usize = 2;

/// Number of crashes of nodes that own the log or are taking it.
const CRASHES: u8 = 1;

/// The maximum length of the log, in blocks.
const BLOCKS: u8 = 6;

/// The maximum length of a log that fits in a [`State`], in blocks.
const BLOCKS_MAX: usize = 8;

/// Number of ticks that the longest lease outlasts.
const TICKS: u32 = 2;

/// A rule that a node breaks while it owns or takes the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    /// An owner sends a write before the previous one is acknowledged.
    TwoInFlight,
    /// A node that takes the log does not read the blocks below its fence.
    FenceUnread,
    /// A new owner does not wait for the former owner's lease to end.
    NoWait,
    /// A new owner waits for 1.1 leases. By a clock that is a tenth slow, a lease is a ninth
    /// longer.
    WaitOfATenthMore,
    /// An owner answers a write as soon as the write is sent.
    AnsweredEarly,
    /// An owner treats a block as acknowledged without an acknowledgement.
    UnknownTakenForAcknowledged,
    /// An owner's lease starts when a block is acknowledged, not when the block was sent.
    LeaseFromAnswer,
    /// An owner's lease continues while the owner releases the log.
    LeaseOutlivesRelease,
    /// An owner releases the log while still waiting out the former owner's lease.
    ReleasedInWait,
    /// A node that owned the log before a crash retakes it without waiting, as if it had released
    /// the log.
    RetakenAsFree,
}

/// An invariant of every state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Promise {
    /// No block of an old epoch is above the fence of a newer one.
    Fenced,
    /// A write that was answered is in the log exactly once.
    Once,
    /// Everything that an owner has, in memory or on disk, is in the log.
    Held,
    /// An owner that answers has read every answered write below its fence.
    Whole,
    /// An owner answers no reads once a newer owner has answered a write or may answer reads.
    Current,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
enum Content {
    #[default]
    Fence,
    Write(u8),
    Heartbeat,
    Release,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
struct Block {
    epoch: u8,
    content: Content,
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of epoch {}", self.content, self.epoch)
    }
}

/// A block in flight: its sender has not yet learned whether it was appended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Sent {
    block: Block,
    /// Number of blocks below the block's place in the log.
    place: u8,
    /// Ticks since the block was sent.
    age: u8,
    is_in_place: bool,
}

/// An owner's tenure, with the times that the owner has measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Tenure {
    epoch: u8,
    /// The place of the owner's fence.
    fence: u8,
    /// The place after the owner's newest acknowledged block.
    next: u8,
    /// Ticks since the owner took the log, up to the length of the wait.
    waited: u8,
    /// Ticks since the owner's newest acknowledged block was sent, up to the length of a lease.
    lease_age: u8,
    /// Whether the owner has released the log or is releasing it.
    is_over: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
struct Node {
    /// Number of blocks that the node has read, while it owns the log or is taking it.
    read: u8,
    /// The last epoch that the node owned, according to its disk. Tracked only for
    /// [`Mistake::RetakenAsFree`]: otherwise it makes no difference, since any node may take the
    /// log at any moment.
    owned_epoch: u8,
    tenure: Option<Tenure>,
    /// The blocks in flight: at most one, except with [`Mistake::TwoInFlight`].
    sent: [Option<Sent>; 2],
}

/// The log, the nodes, and the answers that clients have received.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct State {
    blocks: [Block; BLOCKS_MAX],
    length: u8,
    nodes: [Node; NODES],
    /// Blocks still in flight, with their places, whose senders have since crashed or stopped.
    strays: BTreeSet<(u8, Block)>,
    /// Number of writes sent.
    written: u8,
    answered: [bool; WRITES],
    crashes: u8,
    /// The greatest epoch whose owner could answer reads.
    read_epoch: u8,
}

/// A step from one state to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Sends(Block),
    Arrives(Block),
    LearnsThatInPlace(Block),
    LearnsThatFenced { epoch: u8 },
    Crashes { epoch: Option<u8> },
    TimePasses,
}

struct Model {
    mistake: Option<Mistake>,
    blocks: u8,
    /// The first tick at which a lease has ended.
    lease: u8,
    /// The first tick at which a wait has ended.
    wait: u8,
}

impl Model {
    fn new(mistake: Option<Mistake>, blocks: u8) -> Self {
        // All ticks together last 1.11 leases, slightly less than a lease by a clock that is a
        // tenth slow.
        let tick = LEASE * 111 / 100 / TICKS;
        let wait = match mistake {
            Some(Mistake::NoWait) => Duration::ZERO,
            Some(Mistake::WaitOfATenthMore) => LEASE * 11 / 10,
            _ => LEASE_WAIT,
        };
        let ticks = |time: Duration, tick: Duration| {
            u8::try_from(time.as_nanos().div_ceil(tick.as_nanos())).expect("few ticks")
        };
        Self { mistake, blocks, lease: ticks(LEASE, tick * 9 / 10), wait: ticks(wait, tick) }
    }

    fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// Returns the greatest epoch that the log has room for.
    fn epoch_max(&self) -> u8 {
        self.blocks.div_ceil(2)
    }

    fn has_waited(&self, tenure: Tenure) -> bool {
        tenure.waited >= self.wait
    }

    /// Whether the owner may answer reads.
    fn may_answer(&self, tenure: Tenure) -> bool {
        let is_over = tenure.is_over && !self.makes(Mistake::LeaseOutlivesRelease);
        self.has_waited(tenure) && tenure.lease_age < self.lease && !is_over
    }

    /// Whether the owner of the greatest epoch may answer reads.
    fn last_owner_answers(&self, state: &State) -> bool {
        let mut owners = state.nodes.iter().filter_map(|node| node.tenure);
        owners.any(|tenure| tenure.epoch == self.epoch_max() && self.may_answer(tenure))
    }

    /// Returns the first promise that this state breaks, if any.
    fn broken(&self, state: &State) -> Option<Promise> {
        let log = state.log();
        if !log.is_sorted_by_key(|block| block.epoch) {
            return Some(Promise::Fenced);
        }
        let owners =
            || state.nodes.iter().filter_map(|node| node.tenure.map(|tenure| (node.read, tenure)));
        for (_, Tenure { epoch, fence, next, .. }) in owners() {
            let held = log.get(usize::from(fence)..usize::from(next));
            if !held.is_some_and(|held| held.iter().all(|block| block.epoch == epoch)) {
                return Some(Promise::Held);
            }
        }
        let answering = || owners().filter(|&(_, tenure)| self.may_answer(tenure));
        for write in (0_u8..).zip(state.answered).filter(|it| it.1).map(|it| Content::Write(it.0)) {
            let mut places = (0_u8..).zip(log).filter(|(_, block)| block.content == write);
            let (Some((place, _)), None) = (places.next(), places.next()) else {
                return Some(Promise::Once);
            };
            if answering().any(|(read, tenure)| (read..tenure.fence).contains(&place)) {
                return Some(Promise::Whole);
            }
            if answering().any(|(_, tenure)| tenure.next <= place) {
                return Some(Promise::Current);
            }
        }
        let is_former = |(_, tenure): (u8, Tenure)| tenure.epoch < state.read_epoch;
        answering().any(is_former).then_some(Promise::Current)
    }

    /// Returns all steps from this state, each with the state it leads to.
    fn steps(&self, state: &State) -> Vec<(Step, State)> {
        let mut steps = Vec::new();
        for index in 0..NODES {
            self.add_arrivals(state, index, &mut steps);
            self.add_sends(state, index, &mut steps);
        }
        for &(place, block) in &state.strays {
            if place == state.length {
                let mut next = state.clone();
                next.append(block, None);
                steps.push((Step::Arrives(block), next));
            }
        }
        steps.extend(self.later(state).map(|next| (Step::TimePasses, next)));
        for (_, next) in &mut steps {
            // Nodes are interchangeable, so sorting them merges equivalent states.
            next.nodes.sort_unstable();
            let tenures = next.nodes.iter().filter_map(|node| node.tenure);
            let answering = tenures.filter(|&tenure| self.may_answer(tenure));
            next.read_epoch = answering.map(|it| it.epoch).fold(next.read_epoch, u8::max);
        }
        steps
    }

    /// Adds the steps in which a block of this node arrives or is acknowledged, and those that end
    /// the node's tenure.
    fn add_arrivals(&self, state: &State, index: usize, steps: &mut Vec<(Step, State)>) {
        let node = &state.nodes[index];
        for sent in node.sent.into_iter().flatten() {
            if !sent.is_in_place && sent.place == state.length {
                let mut next = state.clone();
                next.append(sent.block, Some(index));
                steps.push((Step::Arrives(sent.block), next));
            }
            if sent.is_in_place || self.makes(Mistake::UnknownTakenForAcknowledged) {
                let mut next = state.clone();
                self.acknowledge(&mut next, index, sent);
                steps.push((Step::LearnsThatInPlace(sent.block), next));
            }
        }
        let has_sent = node.sent != [None; 2];
        if state.crashes < CRASHES && (node.tenure.is_some() || has_sent) {
            let mut next = state.clone();
            next.crashes += 1;
            next.end(index);
            let epoch = node.tenure.map(|tenure| tenure.epoch);
            steps.push((Step::Crashes { epoch }, next));
        }
        // The owner's next place is taken, so nothing that it sends from now on can be appended.
        if let Some(Tenure { epoch, next: place, .. }) = node.tenure
            && !has_sent
            && place < state.length
        {
            let mut next = state.clone();
            next.end(index);
            steps.push((Step::LearnsThatFenced { epoch }, next));
        }
    }

    /// Adds the blocks that a node may send.
    fn add_sends(&self, state: &State, index: usize, steps: &mut Vec<(Step, State)>) {
        let node = &state.nodes[index];
        let (slot, place) = match (node.tenure, node.sent) {
            (None, [None, None]) => (0, state.length),
            (Some(tenure), [None, None]) if tenure.next == state.length => (0, tenure.next),
            (Some(tenure), [Some(first), None])
                if self.makes(Mistake::TwoInFlight)
                    && matches!(first.block.content, Content::Write(_)) =>
            {
                (1, tenure.next + 1)
            }
            _ => return,
        };
        if place >= self.blocks {
            return;
        }
        let mut send = |epoch, content, change: &dyn Fn(&mut State)| {
            let block = Block { epoch, content };
            let mut next = state.clone();
            let sent = Sent { block, place, age: 0, is_in_place: false };
            next.nodes[index].sent[slot] = Some(sent);
            change(&mut next);
            steps.push((Step::Sends(block), next));
        };
        let Some(tenure) = node.tenure else {
            if state.epoch() < self.epoch_max() {
                let read = if self.makes(Mistake::FenceUnread) { 0 } else { place };
                send(state.epoch() + 1, Content::Fence, &|next| next.nodes[index].read = read);
            }
            return;
        };
        // A request received during the lease may be written after the lease has ended.
        if usize::from(state.written) < WRITES && self.has_waited(tenure) {
            send(tenure.epoch, Content::Write(state.written), &|next| {
                next.answered[usize::from(next.written)] = self.makes(Mistake::AnsweredEarly);
                next.written += 1;
            });
        }
        if slot > 0 {
            return;
        }
        send(tenure.epoch, Content::Heartbeat, &|_| ());
        if self.has_waited(tenure) || self.makes(Mistake::ReleasedInWait) {
            let over = Tenure { is_over: true, ..tenure };
            send(tenure.epoch, Content::Release, &|next| next.nodes[index].tenure = Some(over));
        }
    }

    /// Updates the state for a node that learns that its block is in the log.
    fn acknowledge(&self, state: &mut State, index: usize, sent: Sent) {
        let Sent { block: Block { epoch, content }, place, age, .. } = sent;
        let is_free =
            place == 0 || state.blocks[usize::from(place) - 1].content == Content::Release;
        let age = if self.makes(Mistake::LeaseFromAnswer) { 0 } else { age };
        let node = &mut state.nodes[index];
        match content {
            Content::Fence => {
                let is_retaken =
                    self.makes(Mistake::RetakenAsFree) && node.owned_epoch + 1 == epoch;
                let waited = if is_free || is_retaken { self.wait } else { 0 };
                if self.makes(Mistake::RetakenAsFree) {
                    node.owned_epoch = epoch;
                }
                let (fence, next, lease_age) = (place, place + 1, age);
                node.tenure =
                    Some(Tenure { epoch, fence, next, waited, lease_age, is_over: false });
                node.sent = [None; 2];
            }
            Content::Release => state.end(index),
            Content::Heartbeat | Content::Write(_) => {
                let tenure = node.tenure.as_mut().expect("only an owner sends that");
                tenure.next = place + 1;
                tenure.lease_age = tenure.lease_age.min(age);
                // An acknowledgement of the second of two blocks counts for both.
                node.sent = node.sent.map(|sent| sent.filter(|sent| sent.place > place));
                node.sent.sort_unstable_by_key(Option::is_none);
                if let Content::Write(write) = content {
                    state.answered[usize::from(write)] = true;
                }
            }
        }
    }

    /// Returns the state one tick later; `None` if that would change nothing.
    fn later(&self, state: &State) -> Option<State> {
        let mut next = state.clone();
        for node in &mut next.nodes {
            if let Some(tenure) = &mut node.tenure {
                tenure.waited = self.wait.min(tenure.waited + 1);
                tenure.lease_age = self.lease.min(tenure.lease_age + 1);
            }
            for sent in node.sent.iter_mut().flatten() {
                sent.age = self.lease.min(sent.age + 1);
            }
        }
        (next != *state).then_some(next)
    }
}

impl State {
    fn log(&self) -> &[Block] {
        &self.blocks[..usize::from(self.length)]
    }

    /// Returns the epoch of the newest block.
    fn epoch(&self) -> u8 {
        self.log().last().map_or(0, |block| block.epoch)
    }

    /// Puts a block into the next place, which no other block can then take.
    fn append(&mut self, block: Block, sender: Option<usize>) {
        let place = self.length;
        self.blocks[usize::from(place)] = block;
        self.length += 1;
        self.strays.retain(|&(stray, _)| stray > place);
        for index in 0..NODES {
            let node = &mut self.nodes[index];
            let Some(slot) = node.sent.iter_mut().find(|it| it.is_some_and(|it| it.place == place))
            else {
                continue;
            };
            match slot {
                Some(sent) if sender == Some(index) && sent.block == block => {
                    sent.is_in_place = true;
                }
                // It makes no difference when the sender learns that the place is taken, so it
                // stops at once.
                Some(sent) if matches!(sent.block.content, Content::Fence | Content::Release) => {
                    self.end(index);
                }
                _ => *slot = None,
            }
        }
    }

    /// Ends a node's tenure or its attempt to take the log: the node crashes and restarts, or goes
    /// back to reading.
    fn end(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let on_their_way = node.sent.iter().flatten().filter(|sent| sent.place >= self.length);
        self.strays.extend(on_their_way.map(|sent| (sent.place, sent.block)));
        *node = Node { owned_epoch: node.owned_epoch, ..Node::default() };
    }
}

#[test]
fn no_state_of_a_takeover_breaks_a_promise() {
    let blocks = std::env::var("PAPERBOURSE_MODEL_BLOCKS");
    let blocks = blocks.map_or(BLOCKS, |blocks| blocks.parse().expect("a number up to 8"));
    let Found { states, last_answers, broken } = search(&Model::new(None, blocks));
    println!("{states} states, in {last_answers} of which the last owner answers");
    assert_eq!(broken, None);
    assert!(last_answers > 10_000, "too little happened");
}

#[test]
fn every_mistake_breaks_a_promise() {
    for (mistake, expected) in [
        (Mistake::TwoInFlight, Promise::Fenced),
        (Mistake::FenceUnread, Promise::Whole),
        (Mistake::NoWait, Promise::Current),
        (Mistake::WaitOfATenthMore, Promise::Current),
        (Mistake::AnsweredEarly, Promise::Once),
        (Mistake::UnknownTakenForAcknowledged, Promise::Held),
        (Mistake::LeaseFromAnswer, Promise::Current),
        (Mistake::LeaseOutlivesRelease, Promise::Current),
        (Mistake::ReleasedInWait, Promise::Current),
        (Mistake::RetakenAsFree, Promise::Current),
    ] {
        let Found { states, broken, .. } = search(&Model::new(Some(mistake), BLOCKS));
        let (promise, steps) = broken.unwrap_or_else(|| panic!("{mistake:?} was not detected"));
        println!("{mistake:?}: {promise:?} is broken in one of {states} states:");
        for step in steps {
            println!("  {step:?}");
        }
        assert_eq!(promise, expected, "{mistake:?}");
    }
}
