//! The effect of an attack on a bot: its latencies while clients without valid credentials attack,
//! compared with its latencies beside as many served clients.

mod attackers;
mod holders;

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::Serialize;

use crate::load::Outcome;
use crate::machine::{raise_open_files, resident_bytes};
use crate::report::{Goal, Part};
use crate::server::Kind as ServerKind;
use crate::setup::{Setup, Shape, Target};
use crate::spread::{Spread, median};
use attackers::{Attackers, Counts, Kind, Plan};
use holders::Hold;

/// Number of the bot's keys: the number of accounts that one address may open at once.
const BOT_KEYS: u32 = 4;
const BOT_CONNECTIONS: usize = 8;

/// Interval between samples of the server's memory.
const MEMORY_INTERVAL: Duration = Duration::from_secs(2);
/// Time after which memory must not grow any more.
const MEMORY_SETTLED: Duration = Duration::from_mins(1);

/// Flags of a server behind a proxy, with the default limits per address.
const FLAGS: [&str; 6] = [
    "--trusted-proxy",
    "127.0.0.1",
    "--address-limits",
    "on",
    "--tier",
    // The bot stays within this limit, so that its rate windows are in use.
    "free=1000/60000/10/5",
];

/// Maximum memory, in MB, that clients can make the server hold: twice the budget for bodies, since
/// a growing buffer is up to twice as large as its content, and 64 KiB for each of 2,000
/// connections.
const HELD_MEGABYTES_MAX: f64 = 265.0;

/// The reported quantiles of the bot's latencies.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

/// The options of this measurement.
#[derive(Args, Clone, Debug)]
pub(crate) struct AttackArgs {
    /// Trades of the bot per second
    #[arg(long, default_value_t = 200, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=800))]
    bot_rate: u32,

    /// Requests with an invalid key per second
    #[arg(long, default_value_t = 5_000, value_name = "N")]
    wrong_keys: u32,

    /// Requests with a forged token per second, each from a new address
    #[arg(long, default_value_t = 500, value_name = "N")]
    new_addresses: u32,

    /// Sockets opened with an invalid token per second
    #[arg(long, default_value_t = 200, value_name = "N")]
    socket_opens: u32,

    /// Connections held in the middle of a request head
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    stalled_heads: usize,

    /// Connections that request the health check without a pause, far ahead of the answers
    #[arg(long, default_value_t = 400, value_name = "N")]
    floods: usize,

    /// Connections held idle
    #[arg(long, default_value_t = 2_000, value_name = "N")]
    idle: usize,

    /// Half-sent bodies held with a valid key; as many again are held without one
    #[arg(long, default_value_t = 400, value_name = "N")]
    bodies: usize,
}

/// The activity of other clients while the bot trades.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
enum Beside {
    /// No other clients.
    Nobody,
    /// Public reads, each client within its limits.
    Readers,
    /// An attack at the same rate.
    Attackers,
    /// Requests that keep the workers busy.
    Floods,
    /// Held connections, heads and bodies, more than the server has slots for.
    Holders,
}

impl Beside {
    const ALL: [Self; 5] =
        [Self::Nobody, Self::Readers, Self::Attackers, Self::Floods, Self::Holders];

    const fn name(self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::Readers => "readers",
            Self::Attackers => "attackers",
            Self::Floods => "pipelined floods",
            Self::Holders => "held connections and bodies",
        }
    }
}

/// The results of one round beside one kind of other clients.
#[derive(Serialize)]
struct Sample {
    round: u32,
    beside: Beside,
    bot_count: u64,
    /// The bot's latencies, counted from when a request was due.
    quantiles_us: [f64; QUANTILES.len()],
    counts: Counts,
    /// Answers to the bot and to the other clients.
    answers_per_second: f64,
    /// CPU use of the server and of the generator, in cores.
    server_cpu: f64,
    generator_cpu: f64,
    /// The server's resident memory at the start, and then every two seconds.
    resident_megabytes: Vec<f64>,
}

/// The results of the measurement.
pub(crate) struct Figures {
    arguments: AttackArgs,
    samples: Vec<Sample>,
}

/// Runs the measurement.
pub(crate) fn run(setup: &Setup, arguments: &AttackArgs) -> anyhow::Result<Figures> {
    raise_open_files();
    let mut samples = Vec::new();
    for round in 1..=setup.arguments.rounds {
        // Rotate the order, so that each kind comes first in turn.
        let mut order = Beside::ALL;
        order.rotate_left(round as usize % Beside::ALL.len());
        for beside in order {
            let sample = measure(setup, arguments, round, beside)?;
            eprintln!("round {round}, {}", sample.line());
            samples.push(sample);
        }
    }
    Ok(Figures { arguments: arguments.clone(), samples })
}

fn measure(
    setup: &Setup,
    arguments: &AttackArgs,
    round: u32,
    beside: Beside,
) -> anyhow::Result<Sample> {
    let folder = setup.scratch.0.join(format!("attack-{round}-{beside:?}"));
    let places = arguments.places(beside).to_string();
    let flags = [&FLAGS[..], &["--connections-max", &places]].concat();
    let server = setup.start(ServerKind::Durable, &folder, &flags)?;
    let mut keys = server.make_keys(BOT_KEYS + 1)?;
    let attackers_key = keys.pop().context("no key for the attackers")?;
    let target = Target::of(&server, keys);
    let forged = forged(&server.token("an-attacker")?);
    let seconds = setup.arguments.seconds;
    let whole = setup.arguments.warm_up_seconds + seconds;
    let memory = Memory::watch(server.pid());
    let others = Attackers::start(
        server.address,
        forged,
        attackers_key,
        arguments.plan(beside),
        Duration::from_secs_f64(whole),
    );
    let rate = Some(f64::from(arguments.bot_rate));
    let shape = Shape { rate, seconds, ..setup.closed_loop(BOT_CONNECTIONS) };
    // A single refusal of the bot ends the run.
    let bot = setup.load(&target, shape).context("the bot was not served")?;
    let counts = others.join()?;
    let resident_megabytes = memory.stop()?;
    ensure!(counts.others_reached(beside), "no other client reached the server: {counts:?}");
    drop(server);
    std::fs::remove_dir_all(&folder).context("failed to remove a server's data")?;
    Ok(Sample::of(round, beside, &bot, counts, resident_megabytes, whole))
}

/// Returns the token with a well-formed but invalid signature.
fn forged(token: &str) -> String {
    let (signed, signature) = token.rsplit_once('.').expect("a token has a signature");
    let other = if signature.starts_with('A') { 'B' } else { 'A' };
    format!("{signed}.{other}{}", &signature[1..])
}

impl AttackArgs {
    fn plan(&self, beside: Beside) -> Plan {
        let [wrong_keys, new_addresses, socket_opens] =
            [self.wrong_keys, self.new_addresses, self.socket_opens].map(f64::from);
        match beside {
            Beside::Nobody => Plan::default(),
            Beside::Floods => Plan { floods: self.floods, ..Plan::default() },
            Beside::Holders => Plan { holds: self.holds(), ..Plan::default() },
            Beside::Readers => Plan {
                rates: vec![(Kind::Read, wrong_keys + new_addresses + socket_opens)],
                ..Plan::default()
            },
            Beside::Attackers => Plan {
                rates: vec![
                    (Kind::WrongKey, wrong_keys),
                    (Kind::NewAddress, new_addresses),
                    (Kind::Socket, socket_opens),
                ],
                holds: vec![(Hold::Head, self.stalled_heads)],
                ..Plan::default()
            },
        }
    }

    fn holds(&self) -> Vec<(Hold, usize)> {
        vec![
            (Hold::Nothing, self.idle),
            (Hold::Head, self.stalled_heads),
            (Hold::StrangersBody, self.bodies),
            (Hold::Body, self.bodies),
        ]
    }

    /// Returns the number of the server's connection slots. Beside holders, it is half the number
    /// of held connections.
    fn places(&self, beside: Beside) -> usize {
        const PLACES: usize = 10_000;
        match beside {
            Beside::Holders => {
                let held: usize = self.holds().into_iter().map(|(_, count)| count).sum();
                // Holders with a valid key keep their slots, and so does the bot.
                (held / 2).max(self.bodies + 4 * BOT_CONNECTIONS)
            }
            _ => PLACES,
        }
    }
}

/// A thread that samples the memory of a process at intervals.
struct Memory {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Vec<f64>>>,
}

impl Memory {
    fn watch(pid: u32) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let thread_is_over = is_over.clone();
        let thread = std::thread::spawn(move || {
            let mut samples = Vec::new();
            let mut next = Instant::now();
            while !thread_is_over.load(Ordering::Relaxed) {
                if Instant::now() >= next {
                    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
                    samples.push(resident_bytes(pid)? as f64 / 1e6);
                    next += MEMORY_INTERVAL;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            Ok(samples)
        });
        Self { is_over, thread }
    }

    fn stop(self) -> anyhow::Result<Vec<f64>> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("the sampler does not panic")
    }
}

impl Counts {
    /// Whether the expected clients reached the server.
    fn others_reached(&self, beside: Beside) -> bool {
        match beside {
            Beside::Nobody => true,
            Beside::Readers | Beside::Attackers => !self.answers.is_empty(),
            Beside::Floods => self.flood_bytes > 0,
            Beside::Holders => self.holds_dropped + self.holds_refused > 0,
        }
    }
}

impl Sample {
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    fn of(
        round: u32,
        beside: Beside,
        bot: &Outcome,
        counts: Counts,
        resident_megabytes: Vec<f64>,
        whole_seconds: f64,
    ) -> Self {
        let bot_count = bot.latency_ns.len();
        let elapsed = bot.elapsed.as_secs_f64();
        Self {
            round,
            beside,
            bot_count,
            quantiles_us: QUANTILES.map(|(_, quantile)| bot.quantile_us(quantile)),
            answers_per_second: counts.answered() as f64 / whole_seconds
                + bot_count as f64 / elapsed,
            counts,
            server_cpu: bot.server_cpu_seconds / elapsed,
            generator_cpu: bot.generator_cpu_seconds / elapsed,
            resident_megabytes,
        }
    }

    /// Returns the factor by which memory has grown since it should have settled, or NaN if the run
    /// was too short.
    fn growth(&self) -> f64 {
        let settled = MEMORY_SETTLED.as_secs() / MEMORY_INTERVAL.as_secs();
        let settled = usize::try_from(settled).expect("a small number of samples");
        match (self.resident_megabytes.get(settled), self.resident_megabytes.last()) {
            (Some(settled), Some(last)) => last / settled,
            _ => f64::NAN,
        }
    }

    fn line(&self) -> String {
        let [p50, p99, p999, max] = self.quantiles_us;
        let megabytes = |index: Option<&f64>| index.map_or(f64::NAN, |&megabytes| megabytes);
        format!(
            "{:?}: bot p50 {p50:.0}, p99 {p99:.0}, p99.9 {p999:.0}, max {max:.0} us of {}; {:.0} \
             answers/s; server {:.2} cores and {:.0} to {:.0} MB, generator {:.2} cores; {:?}",
            self.beside,
            self.bot_count,
            self.answers_per_second,
            self.server_cpu,
            megabytes(self.resident_megabytes.first()),
            megabytes(self.resident_megabytes.last()),
            self.generator_cpu,
            self.counts,
        )
    }
}

impl Figures {
    /// Returns the section of the report.
    pub(crate) fn part(&self) -> Part {
        Part {
            name: "attack",
            title: "A bot beside an attack",
            markdown: self.markdown(),
            goals: self.goals(),
            json: serde_json::json!({ "samples": self.samples }),
        }
    }

    fn of(&self, beside: Beside) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| sample.beside == beside)
    }

    fn goals(&self) -> Vec<Goal> {
        let p99 = |beside| median(self.of(beside), |sample| sample.quantiles_us[1]);
        let growths = self.of(Beside::Attackers).map(Sample::growth);
        let peak = |beside| {
            let samples = self.of(beside).flat_map(|sample| &sample.resident_megabytes);
            samples.copied().fold(f64::NAN, f64::max)
        };
        #[expect(clippy::cast_precision_loss, reason = "should be zero")]
        let got_in = self.samples.iter().map(|sample| sample.counts.got_in() as f64).sum::<f64>();
        vec![
            Goal::at_most(
                "the bot's p99 beside attackers / beside readers",
                p99(Beside::Attackers) / p99(Beside::Readers),
                2.0,
            ),
            Goal::at_most(
                "memory at the end of an attack / after its first minute, in the worst round",
                Spread::of(growths).highest,
                // The bot's orders stay in memory.
                1.05,
            ),
            Goal::at_most("attackers who got in", got_in, 0.0),
            Goal::at_most(
                "the bot's p99 beside pipelined floods / alone",
                p99(Beside::Floods) / p99(Beside::Nobody),
                3.0,
            ),
            Goal::at_most(
                "the bot's p99 beside held connections and bodies / alone",
                p99(Beside::Holders) / p99(Beside::Nobody),
                3.0,
            ),
            Goal::at_most(
                "MB that held connections and bodies take, at the most",
                peak(Beside::Holders) - peak(Beside::Nobody),
                HELD_MEGABYTES_MAX,
            ),
        ]
    }

    fn markdown(&self) -> String {
        let AttackArgs {
            bot_rate,
            wrong_keys,
            new_addresses,
            socket_opens,
            stalled_heads,
            floods,
            idle,
            bodies,
        } = self.arguments;
        let places = self.arguments.places(Beside::Holders);
        let mut out = format!(
            "A bot makes {bot_rate} durable trades a second over {BOT_CONNECTIONS} connections. \
             At the same time, attackers send {wrong_keys} requests a second with invalid keys, \
             {new_addresses} with forged tokens from new addresses and {socket_opens} for sockets, \
             and keep {stalled_heads} connections in the middle of a head; or readers send as many \
             public reads; or {floods} connections request the health check without a pause, 64 \
             requests at a time; or others hold {idle} idle connections, {stalled_heads} half-sent \
             heads, {bodies} half-sent bodies without a credential and {bodies} with one, on a \
             server with {places} slots. All requests are due on a clock, and the bot's latencies \
             count from when a trade was due, in microseconds. Medians of the rounds, with the \
             lowest and highest.\n\n\
             | beside | {} | answers/s | server (cores) | generator (cores) | memory at the begin \
             (MB) | at the end |\n|---|{}---|---|---|---|---|\n",
            QUANTILES.map(|(name, _)| name).join(" | "),
            "---|".repeat(QUANTILES.len())
        );
        for beside in Beside::ALL {
            let name = beside.name();
            let cell = |digits, value: &dyn Fn(&Sample) -> f64| {
                Spread::of(self.of(beside).map(value)).cell(digits)
            };
            let _ = write!(out, "| {name} |");
            for index in 0..QUANTILES.len() {
                let _ = write!(out, " {} |", cell(0, &|sample| sample.quantiles_us[index]));
            }
            let megabytes = |value: Option<&f64>| value.map_or(f64::NAN, |&megabytes| megabytes);
            let _ = writeln!(
                out,
                " {} | {} | {} | {} | {} |",
                cell(0, &|sample| sample.answers_per_second),
                cell(2, &|sample| sample.server_cpu),
                cell(2, &|sample| sample.generator_cpu),
                cell(0, &|sample| megabytes(sample.resident_megabytes.first())),
                cell(0, &|sample| megabytes(sample.resident_megabytes.last()))
            );
        }
        out.push_str("\n| what attackers got | |\n|---|---|\n");
        for (kind, name) in [
            (Kind::WrongKey, "wrong keys"),
            (Kind::NewAddress, "forged tokens from new addresses"),
            (Kind::Socket, "sockets (4001: closed at once)"),
        ] {
            let _ = writeln!(out, "| {name} | {} |", self.statuses(kind));
        }
        for (name, beside) in
            [("stalled heads", Beside::Attackers), ("held connections", Beside::Holders)]
        {
            let sum = |value: fn(&Counts) -> u64| {
                self.of(beside).map(|sample| value(&sample.counts)).sum::<u64>()
            };
            let dropped = sum(|counts| counts.holds_dropped);
            let refused = sum(|counts| counts.holds_refused);
            let _ = writeln!(out, "| {name} | {dropped} dropped, {refused} refused |");
        }
        let flooded = self.of(Beside::Floods).map(|sample| sample.counts.flood_bytes).sum::<u64>();
        let _ = writeln!(out, "| floods | {} MB of answers |", flooded / 1_000_000);
        out
    }

    /// Formats the answers to one kind of attack, summed over all rounds.
    fn statuses(&self, kind: Kind) -> String {
        let mut total = std::collections::BTreeMap::<u16, u64>::new();
        let mut unanswered = 0;
        for sample in self.of(Beside::Attackers) {
            for (&status, &count) in sample.counts.answers.get(&kind).into_iter().flatten() {
                *total.entry(status).or_default() += count;
            }
            unanswered += sample.counts.unanswered.get(&kind).copied().unwrap_or(0);
        }
        let counts: Vec<String> =
            total.iter().map(|(status, count)| format!("{count} × {status}")).collect();
        format!("{}; {unanswered} unanswered", counts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn sample(beside: Beside, p99_us: f64, status: u16, megabytes: Vec<f64>) -> Sample {
        let answers = BTreeMap::from([(Kind::WrongKey, BTreeMap::from([(status, 7)]))]);
        Sample {
            round: 1,
            beside,
            bot_count: 1,
            quantiles_us: [1.0, p99_us, 3.0, 4.0],
            counts: Counts { answers, ..Counts::default() },
            answers_per_second: 1.0,
            server_cpu: 0.5,
            generator_cpu: 0.25,
            resident_megabytes: megabytes,
        }
    }

    #[test]
    fn the_goals_are_latency_memory_and_no_intruder() {
        let arguments = AttackArgs {
            bot_rate: 1,
            wrong_keys: 2,
            new_addresses: 3,
            socket_opens: 4,
            stalled_heads: 5,
            floods: 6,
            idle: 7,
            bodies: 8,
        };
        // The first minute ends with sample 31.
        let megabytes: Vec<f64> = (0..30).map(f64::from).chain([100.0, 120.0, 110.0]).collect();
        let short = vec![1.0; 30];
        for (statuses, megabytes, expected) in [
            ([401, 429], megabytes, ["2.50", "1.10", "0", "3.5", "2", "64"]),
            ([200, 401], short, ["2.50", "NaN", "7", "3.5", "2", "64"]),
        ] {
            let samples = vec![
                sample(Beside::Readers, 2.0, 401, vec![]),
                sample(Beside::Attackers, 5.0, statuses[0], megabytes.clone()),
                sample(Beside::Attackers, 5.0, statuses[1], megabytes),
                sample(Beside::Nobody, 4.0, 401, vec![30.0, 36.0]),
                sample(Beside::Floods, 14.0, 401, vec![]),
                sample(Beside::Holders, 8.0, 401, vec![50.0, 100.0, 70.0]),
            ];
            let figures = Figures { arguments: arguments.clone(), samples };
            assert_eq!(figures.goals().len(), expected.len());
            let goals = serde_json::to_value(figures.goals()).unwrap();
            for (goal, expected) in goals.as_array().unwrap().iter().zip(expected) {
                let measured = goal["measured"].as_f64().unwrap_or(f64::NAN);
                let expected: f64 = expected.parse().unwrap();
                assert!(
                    (measured - expected).abs() < 1e-9 || measured.is_nan() && expected.is_nan(),
                    "{goal}"
                );
            }
            let row = format!("| wrong keys | 7 × {}", statuses[0].min(statuses[1]));
            assert!(figures.markdown().contains(&row), "{}", figures.markdown());
        }
    }

    #[test]
    fn the_expected_clients_must_have_reached_the_server() {
        let counts = Counts { flood_bytes: 1, ..Counts::default() };
        let reached = Beside::ALL.map(|beside| counts.others_reached(beside));
        assert_eq!(reached, [true, false, false, true, false]);
        let counts = Counts { holds_refused: 1, ..Counts::default() };
        assert!(counts.others_reached(Beside::Holders) && !counts.others_reached(Beside::Floods));
    }

    #[test]
    fn a_forged_token_differs_only_in_its_signature() {
        assert_eq!(forged("head.body.signature"), "head.body.Aignature");
        assert_eq!(forged("head.body.Ab"), "head.body.Bb");
    }
}
