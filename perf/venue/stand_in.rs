//! The venue stand-in as a separate process, with orders on standard input and answers on standard
//! output, one line of JSON each.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::evening::{Evening, Speed};
use crate::process::{Ending, Process};
use crate::socket::now_ns;
pub(crate) use crate::venue_side::standin::world::{condition_id, token_id};
use crate::venue_side::standin::{Options, Pace, Side, StandIn, World, micros};

/// Timeout for the answer to any order except a walk.
const ANSWER_PATIENCE: Duration = Duration::from_mins(1);

/// The options of the process.
#[derive(Args, Debug)]
pub(crate) struct StandInArgs {
    /// Markets, with two tokens each
    #[arg(long)]
    markets: usize,

    /// Give them the books of the recorded evening
    #[arg(long)]
    evening: bool,
}

/// A command to the stand-in.
#[derive(Serialize, Deserialize)]
enum Order {
    /// Move the books at random, with this many messages per second.
    Walk { seed: u64, messages_per_second: u32, duration: Duration },
    /// Continue the recorded evening.
    Evening { speed: Speed, duration: Duration },
    /// Report the best prices of the books since the last report of the evening.
    Tops,
    /// Remove the best bid of every market, so that there is room for an ask.
    Widen,
    /// Show asks for some time.
    Show(Asks),
    /// Report all current books.
    Books,
    /// Report the client's violations of the venue's rules.
    Violations,
}

/// Asks that are due at a fixed rate, whether or not the client keeps up.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Asks {
    /// The market of each ask, and its price for the first outcome.
    pub(crate) levels: Vec<(usize, String)>,
    pub(crate) shares: u32,
    /// The time at which the first ask is due, in nanoseconds since 1970.
    pub(crate) begin_ns: u64,
    pub(crate) interval_ns: u64,
    /// Time for which each ask is shown, in nanoseconds.
    pub(crate) stay_ns: u64,
}

impl Asks {
    /// Returns the time at which an ask is due, in nanoseconds since 1970.
    pub(crate) fn due_ns(&self, number: usize) -> u64 {
        self.begin_ns + self.interval_ns * number as u64
    }
}

/// The addresses of the stand-in.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Addresses {
    pub(crate) gamma: String,
    pub(crate) clob: String,
    pub(crate) data: String,
    pub(crate) socket: String,
    /// The certificate authority to trust.
    pub(crate) authority: PathBuf,
}

/// A book of the stand-in: prices and sizes, the best level first.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct TrueBook {
    pub(crate) token_id: String,
    pub(crate) bids: Vec<(Box<str>, Box<str>)>,
    pub(crate) asks: Vec<(Box<str>, Box<str>)>,
}

/// The best prices of a market's first outcome at the stand-in, in millionths of a dollar. For an
/// empty side they are 0 and a dollar.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TrueTop {
    pub(crate) market: usize,
    /// The venue's timestamp, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    pub(crate) bid_micros: i64,
    pub(crate) ask_micros: i64,
}

impl TrueTop {
    /// Returns the best prices of this market now.
    pub(crate) fn of(venue: &StandIn, market: usize) -> Self {
        let (at_ms, bid, ask) = venue.top(&token_id(market, 0));
        Self { market, at_ms, bid_micros: micros(&bid), ask_micros: micros(&ask) }
    }
}

/// Runs the process until its input ends.
pub(crate) fn run(arguments: &StandInArgs) -> anyhow::Result<()> {
    let (orders, mut received) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            let Ok(line) = line else { return };
            if orders.send(line).is_err() {
                return;
            }
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let world = World::invented(arguments.markets);
        // Earlier books are not needed.
        let venue = StandIn::start(world, Options { history_max: 1, ..Options::default() }).await;
        let venue = Arc::new(venue);
        let mut evening =
            arguments.evening.then(|| Evening::begin(&venue, arguments.markets)).transpose()?;
        print(&Addresses {
            gamma: venue.gamma_url.clone(),
            clob: venue.clob_url.clone(),
            data: venue.data_url.clone(),
            socket: venue.ws_url.clone(),
            authority: venue.authority_path.clone().context("the stand-in speaks TLS")?,
        })?;
        while let Some(line) = received.recv().await {
            match serde_json::from_str(&line)? {
                Order::Walk { seed, messages_per_second, duration } => {
                    print(&venue.run_messages(seed, messages_per_second, duration).await)?;
                }
                Order::Evening { speed, duration } => {
                    let evening = evening.as_mut().context("the books are not of the evening")?;
                    print(&evening.play(&venue, speed, duration).await)?;
                }
                Order::Tops => {
                    let evening = evening.as_mut().context("the books are not of the evening")?;
                    print(&(evening.take_tops(), evening.played_ms()))?;
                }
                Order::Widen => print(&widen(&venue, arguments.markets))?,
                Order::Show(asks) => {
                    let venue = venue.clone();
                    // A blocking sleep is precise, while the runtime's timers have millisecond
                    // resolution.
                    print(&tokio::task::spawn_blocking(move || show(&venue, &asks)).await?)?;
                }
                Order::Books => print(&books(&venue, arguments.markets))?,
                Order::Violations => print(&venue.violations())?,
            }
        }
        Ok(())
    })
}

/// Removes the best bids. Returns their prices, by market.
fn widen(venue: &StandIn, market_count: usize) -> Vec<String> {
    let removed = (0..market_count).map(|number| {
        let token = token_id(number, 0);
        let book = venue.published(&token).pop().expect("every invented token has a book");
        let (price, _) = &book.bids[0];
        venue.change_level(&token, Side::Buy, price, "0");
        String::from(&**price)
    });
    removed.collect()
}

/// Shows each ask when it is due, and removes it later. Returns the longest delay in showing one.
fn show(venue: &StandIn, asks: &Asks) -> Duration {
    let mut late_max_ns = 0;
    let (mut shown, mut gone) = (0, 0);
    let shares = asks.shares.to_string();
    while gone < asks.levels.len() {
        let gone_ns = asks.due_ns(gone) + asks.stay_ns;
        let is_show = shown < asks.levels.len() && asks.due_ns(shown) <= gone_ns;
        let due_ns = if is_show { asks.due_ns(shown) } else { gone_ns };
        std::thread::sleep(Duration::from_nanos(due_ns.saturating_sub(now_ns())));
        let change = if is_show { &mut shown } else { &mut gone };
        let (market, price) = &asks.levels[*change];
        *change += 1;
        let size = if is_show { shares.as_str() } else { "0" };
        venue.change_level(&token_id(*market, 0), Side::Sell, price, size);
        if is_show {
            late_max_ns = late_max_ns.max(now_ns() - due_ns);
        }
    }
    Duration::from_nanos(late_max_ns)
}

fn books(venue: &StandIn, market_count: usize) -> Vec<TrueBook> {
    let tokens = (0..market_count).flat_map(|number| [token_id(number, 0), token_id(number, 1)]);
    let books = tokens.map(|token_id| {
        let book = venue.published(&token_id).pop().expect("every invented token has a book");
        TrueBook { token_id, bids: book.bids, asks: book.asks }
    });
    books.collect()
}

fn print(answer: &impl Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_string(answer)?;
    line.push('\n');
    std::io::stdout().write_all(line.as_bytes())?;
    Ok(std::io::stdout().flush()?)
}

/// The process of the stand-in, from its parent's point of view. Dropping this ends it.
pub(crate) struct StandInProcess {
    process: Process,
    answers: Receiver<String>,
    pub(crate) addresses: Addresses,
}

impl StandInProcess {
    /// Starts the stand-in with this number of markets, with invented books or those of the
    /// recorded evening.
    pub(crate) fn start(market_count: usize, is_evening: bool) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("failed to find the path of this program")?;
        let mut command = Command::new(own);
        command.args(["stand-in", "--markets", &market_count.to_string()]);
        command.args(is_evening.then_some("--evening"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(&mut command, Ending::Kill)?;
        let stdout = process.child().stdout.take().expect("the child's output is a pipe");
        let (lines, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    return;
                }
            }
        });
        let addresses = read(&answers, ANSWER_PATIENCE)?.context("the stand-in did not start")?;
        Ok(Self { process, answers, addresses })
    }

    /// Returns the process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Starts moving the books; [`Self::walked`] returns the result.
    pub(crate) fn walk(
        &mut self,
        seed: u64,
        messages_per_second: u32,
        duration: Duration,
    ) -> anyhow::Result<()> {
        self.order(&Order::Walk { seed, messages_per_second, duration })
    }

    /// Starts continuing the evening; [`Self::walked`] returns the result.
    pub(crate) fn go_on(&mut self, speed: Speed, duration: Duration) -> anyhow::Result<()> {
        self.order(&Order::Evening { speed, duration })
    }

    /// Returns the best prices of the first outcome's book of each market since the last call, in
    /// order, and the number of milliseconds of the evening that have been played.
    pub(crate) fn tops(&mut self) -> anyhow::Result<(Vec<TrueTop>, u64)> {
        self.order(&Order::Tops)?;
        read(&self.answers, ANSWER_PATIENCE)?.context("the stand-in did not report what it showed")
    }

    /// Returns the result of the walk or the evening, or `None` if it did not end in time.
    pub(crate) fn walked(&self, patience: Duration) -> anyhow::Result<Option<Pace>> {
        read(&self.answers, patience)
    }

    /// Removes the best bids. Returns their prices, by market.
    pub(crate) fn widen(&mut self) -> anyhow::Result<Vec<String>> {
        self.order(&Order::Widen)?;
        read(&self.answers, ANSWER_PATIENCE)?.context("the stand-in removed no bids")
    }

    /// Shows asks until all of them have been removed. Returns the longest delay in showing one.
    pub(crate) fn show(&mut self, asks: Asks) -> anyhow::Result<Duration> {
        let last_ns = asks.due_ns(asks.levels.len()) + asks.stay_ns;
        let patience = ANSWER_PATIENCE + Duration::from_nanos(last_ns.saturating_sub(now_ns()));
        self.order(&Order::Show(asks))?;
        read(&self.answers, patience)?.context("the stand-in showed no asks")
    }

    /// Returns all current books.
    pub(crate) fn books(&mut self) -> anyhow::Result<Vec<TrueBook>> {
        self.order(&Order::Books)?;
        read(&self.answers, ANSWER_PATIENCE)?.context("the stand-in reported no books")
    }

    /// Returns the client's violations of the venue's rules.
    pub(crate) fn violations(&mut self) -> anyhow::Result<Vec<String>> {
        self.order(&Order::Violations)?;
        read(&self.answers, ANSWER_PATIENCE)?.context("the stand-in did not report violations")
    }

    fn order(&mut self, order: &Order) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(order)?;
        line.push('\n');
        let stdin = self.process.child().stdin.as_mut().expect("the child's input is a pipe");
        stdin.write_all(line.as_bytes()).context("the stand-in has ended")
    }
}

fn read<T: DeserializeOwned>(
    answers: &Receiver<String>,
    patience: Duration,
) -> anyhow::Result<Option<T>> {
    match answers.recv_timeout(patience) {
        Ok(line) => Ok(Some(serde_json::from_str(&line)?)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => bail!("the stand-in has ended"),
    }
}
