//! The venue stand-in as a separate process, with orders on standard input and answers on standard
//! output, one line of JSON each.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::process::{Ending, Process};
pub(crate) use crate::venue_side::standin::world::{condition_id, token_id};
use crate::venue_side::standin::{Options, Pace, StandIn, World};

/// How long the stand-in may take to answer any order except a walk.
const ANSWER_PATIENCE: Duration = Duration::from_mins(1);

/// The options of the process.
#[derive(Args, Debug)]
pub(crate) struct StandInArgs {
    /// Markets, with two tokens each
    #[arg(long)]
    markets: usize,
}

/// An order to the stand-in.
#[derive(Serialize, Deserialize)]
enum Order {
    /// Move the books at random, with this many messages per second.
    Walk { seed: u64, messages_per_second: u32, duration: Duration },
    /// Report all current books.
    Books,
    /// Report the client's violations of the venue's rules.
    Violations,
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
        // Nobody needs earlier books.
        let venue = StandIn::start(world, Options { history_max: 1, ..Options::default() }).await;
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
                Order::Books => print(&books(&venue, arguments.markets))?,
                Order::Violations => print(&venue.violations())?,
            }
        }
        Ok(())
    })
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

/// The process as seen by its parent, ended on drop.
pub(crate) struct StandInProcess {
    process: Process,
    answers: Receiver<String>,
    pub(crate) addresses: Addresses,
}

impl StandInProcess {
    /// Starts it with this number of markets.
    pub(crate) fn start(market_count: usize) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("failed to find the path of this program")?;
        let mut command = Command::new(own);
        command.args(["stand-in", "--markets", &market_count.to_string()]);
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

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Starts to move the books; [`Self::walked`] returns the result.
    pub(crate) fn walk(
        &mut self,
        seed: u64,
        messages_per_second: u32,
        duration: Duration,
    ) -> anyhow::Result<()> {
        self.order(&Order::Walk { seed, messages_per_second, duration })
    }

    /// The result of the walk; `None` if it did not end in time.
    pub(crate) fn walked(&self, patience: Duration) -> anyhow::Result<Option<Pace>> {
        read(&self.answers, patience)
    }

    /// All current books.
    pub(crate) fn books(&mut self) -> anyhow::Result<Vec<TrueBook>> {
        self.order(&Order::Books)?;
        read(&self.answers, ANSWER_PATIENCE)?.context("the stand-in reported no books")
    }

    /// The client's violations of the venue's rules.
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
