//! Runs the script that computes the same fills from the same files.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

/// A tradable outcome and its book, best levels first.
#[derive(Clone, Deserialize, Debug)]
pub(crate) struct Row {
    pub(crate) market_id: String,
    pub(crate) outcome: String,
    /// `own`, or `mirrored` when the other outcome's book is used.
    pub(crate) book: String,
    pub(crate) asks: Vec<(String, String)>,
    pub(crate) bids: Vec<(String, String)>,
    pub(crate) rate: String,
}

/// The outcome of an order, with numbers as decimal text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Filled(Fill),
    Rejected { code: String },
}

/// The numbers of a fill that both the server and the script report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fill {
    pub(crate) price: String,
    pub(crate) notional: String,
    pub(crate) fee: String,
    pub(crate) balance: String,
    pub(crate) position_quantity: String,
    pub(crate) average_entry_price: String,
}

/// A computed outcome and the number of levels that the order took.
pub(crate) struct Computed {
    pub(crate) outcome: Outcome,
    pub(crate) level_count: usize,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Rejected {
        rejected: String,
    },
    Filled {
        levels: Vec<(String, String)>,
        price: String,
        notional: String,
        fee: String,
        balance: String,
        position: Position,
    },
}

#[derive(Deserialize)]
struct Position {
    quantity: String,
    avg_entry_price: String,
}

/// All outcomes that the script considers tradable.
pub(crate) fn list(directory: &Path) -> Vec<Row> {
    run(directory, "--list", "").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The outcomes of these orders, executed in sequence for an account with this balance.
pub(crate) fn execute(directory: &Path, starting_balance: &str, orders: &str) -> Vec<Computed> {
    let output = run(directory, starting_balance, orders);
    output.lines().map(|line| computed(serde_json::from_str(line).unwrap())).collect()
}

fn computed(line: Line) -> Computed {
    match line {
        Line::Rejected { rejected } => {
            Computed { outcome: Outcome::Rejected { code: rejected }, level_count: 0 }
        }
        Line::Filled { levels, price, notional, fee, balance, position } => Computed {
            level_count: levels.len(),
            outcome: Outcome::Filled(Fill {
                price,
                notional,
                fee,
                balance,
                position_quantity: position.quantity,
                average_entry_price: position.avg_entry_price,
            }),
        },
    }
}

/// Whether the script can run on this machine. CI must be able to run it.
pub(crate) fn is_runnable() -> bool {
    let is_there = Command::new("python3").arg("--version").output().is_ok();
    if !is_there {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "no python3 to run the oracle with");
        eprintln!("SKIPPED: no python3 to run the oracle with");
    }
    is_there
}

fn run(directory: &Path, argument: &str, input: &str) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/fills.py");
    let mut child = Command::new("python3")
        .arg(script)
        .arg(directory)
        .arg(argument)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // Pipes are small: write the input while reading the output, or both processes block.
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input.as_bytes()).unwrap());
        child.wait_with_output().unwrap()
    });
    assert!(output.status.success(), "the script failed: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}
