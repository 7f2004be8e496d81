//! Polymarket's own clients, unchanged, against the real server with `--clob on`: every public
//! method, except those for what this server has not, each of which fails. Each script runs in two
//! halves, between which the server is killed: what the first one was given works in the second.
//! `.ci/clob` installs the clients.

mod trouble;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use paperbourse_test_support::process::{ServerProcess, command};

use super::{blocks_of_python, installed, output_of};

/// The binary under test.
pub(super) const BINARY: &str = env!("CARGO_BIN_EXE_paperbourse");

/// Set where the client for Rust must have been built. A name that began with that of a setting
/// would stop every server.
const RUST_VARIABLE: &str = "PAPERBOURSE_RUST_CLIENT";

/// Set where `nautilus_trader` must have been installed.
const NAUTILUS_VARIABLE: &str = "PAPERBOURSE_NAUTILUS";

/// A server whose books stand still, so that answers can be compared with each other.
fn start(data: &Path, hashes: &str) -> ServerProcess {
    let still = ["--venue", "simulated:1", "--venue-speed", "0.000001", "--clob", "on"];
    let unlimited = ["--address-limits", "off", "--tier", "free=unlimited/unlimited/2/5"];
    let hashes = ["--clob-hashes", hashes, "--admin-listen", "127.0.0.1:0"];
    ServerProcess::start(BINARY, data, &[&still[..], &unlimited, &hashes].concat())
}

/// Has a script run against this server, whose metrics say what a client has asked for.
fn against(mut script: Command, server: &ServerProcess) -> Command {
    script.arg(host(server)).env("METRICS", admin(server).to_string());
    script
}

/// The address of the admin listener.
pub(super) fn admin(server: &ServerProcess) -> SocketAddr {
    let line = server.logged("metrics on http://");
    let (_, address) = line.split_once("metrics on http://").unwrap();
    address.split('/').next().unwrap().parse().unwrap()
}

pub(super) fn host(server: &ServerProcess) -> String {
    format!("http://{}", server.address)
}

/// The folder of the clients that `.ci/clob` installed; `None` if it has not, which fails in CI.
pub(super) fn clients() -> Option<PathBuf> {
    let reason = "Polymarket's clients are not installed (.ci/clob does it), so none was tried";
    installed("clob", reason)
}

pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/outside/clob")
}

/// Runs both halves of a script, which has to call at least so many methods. In the first, clients
/// have to ask for the transactions of an order that matches, in the second they are told.
#[track_caller]
fn run(script: impl Fn() -> Command, count_min: usize) {
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path(), "when-asked");
    let known = output_of(&mut against(script(), &server));
    server.kill();
    let server = start(data.path(), "at-once");
    let called = output_of(against(script(), &server).arg(known.trim_end()));
    assert!(called.trim_end().parse::<usize>().unwrap() >= count_min, "{called}");
}

#[track_caller]
fn run_python(script: &str, count_min: usize) {
    let Some(clients) = clients() else { return };
    let script = folder().join(script);
    let python = || {
        let mut python = Command::new(clients.join("bin/python"));
        python.arg(&script);
        python
    };
    run(python, count_min);
}

#[track_caller]
fn run_node(package: &str, count_min: usize) {
    let Some(clients) = clients() else { return };
    let script = folder().join("with_clob_client.mjs");
    let node = || {
        let mut node = Command::new("node");
        node.arg(&script).arg(package).env("MODULES", &clients);
        node
    };
    run(node, count_min);
}

#[test]
fn py_clob_client_v2_works() {
    run_python("with_py_clob_client_v2.py", 73);
}

#[test]
fn py_clob_client_works() {
    run_python("with_py_clob_client.py", 63);
}

#[test]
fn polymarket_client_works() {
    run_python("with_polymarket_client.py", 102);
}

#[test]
fn clob_client_v2_works() {
    run_node("@polymarket/clob-client-v2", 76);
}

#[test]
fn clob_client_works() {
    run_node("@polymarket/clob-client", 70);
}

/// Runs a script against a server that `start` starts. It has to print at least this number.
#[track_caller]
fn check_count(script: &str, start: impl Fn(&Path) -> ServerProcess, count_min: usize) {
    let Some(clients) = clients() else { return };
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path());
    let mut python = Command::new(clients.join("bin/python"));
    let count = output_of(python.arg(folder().join(script)).arg(host(&server)));
    assert!(count.trim_end().parse::<usize>().unwrap() >= count_min, "{count}");
}

/// Markets and events as the unified client reads them are those of the other interfaces, and each
/// of its filters selects.
#[test]
fn the_catalogue_is_read_with_each_filter() {
    let Some(clients) = clients() else { return };
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path(), "when-asked");
    let mut python = Command::new(clients.join("bin/python"));
    let counts = output_of(python.arg(folder().join("catalogue.py")).arg(host(&server)));
    let counts = counts.split_whitespace().map(|count| count.parse().unwrap());
    let [compared, filters] = counts.collect::<Vec<usize>>()[..] else { panic!("no counts") };
    assert!(compared >= 1_150 && filters >= 75, "{compared} {filters}");
}

/// Books that are kept from frames of the market socket, raw ones and those of a client, have the
/// hashes that come with them.
#[test]
fn books_kept_from_frames_have_their_hashes() {
    let moving = ["--venue-speed", "20", "--clob", "on"];
    check_count("market_socket.py", |data| ServerProcess::start(BINARY, data, &moving), 1_000);
}

/// What a client's stream tells of its orders and trades is what its requests return.
#[test]
fn a_client_is_told_of_its_orders() {
    check_count("user_socket.py", |data| start(data, "when-asked"), 3 * 7);
}

/// What a wallet has traded is read by the strict models of a client, by each name of the wallet.
#[test]
fn polymarket_client_reads_the_data_api() {
    check_count("data.py", |data| start(data, "when-asked"), 375);
}

/// Returns the folder of a client that is not in CI; `None` if it is not there, which fails if
/// `variable` is set.
fn nightly_client(name: &str, file: &str, variable: &str, reason: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join(name);
    if folder.join(file).exists() {
        return Some(folder);
    }
    assert!(std::env::var_os(variable).is_none(), "{reason}");
    eprintln!("SKIPPED: {reason}");
    None
}

/// The program with the client for Rust, and the names of its methods; `None` if `.ci/clob --rust`
/// has not built it. It is not in CI, because it takes minutes to build.
fn rust_client() -> Option<[PathBuf; 2]> {
    let reason = "the client for Rust is not built (.ci/clob --rust does it), so not tried";
    let built = nightly_client("clob-rust", "methods", RUST_VARIABLE, reason)?;
    Some([built.join("debug/paperbourse-clob-client"), built.join("methods")])
}

/// Its lists of the catalogue and of the Data API, and its user socket, too.
#[test]
fn polymarket_client_sdk_v2_works() {
    let Some([program, methods]) = rust_client() else { return };
    let client = || {
        let mut client = Command::new(&program);
        client.arg(&methods);
        client
    };
    run(client, 78);
}

/// Books that are kept from the frames that it reads are those that it requests.
#[test]
fn polymarket_client_sdk_v2_works_while_books_move() {
    let Some([program, _]) = rust_client() else { return };
    let data = tempfile::tempdir().unwrap();
    // The client drops frames if it is behind by more than about a thousand.
    let moving = ["--venue-speed", "5", "--clob", "on", "--address-limits", "off"];
    let server = ServerProcess::start(BINARY, data.path(), &moving);
    let compared = output_of(Command::new(program).args(["books", &host(&server)]));
    assert!(compared.trim_end().parse::<usize>().unwrap() >= 500, "{compared}");
}

/// A node of `nautilus_trader` trades, and two others go on from where it has ended: one at the
/// same server, the other after the server was killed. What a node thinks that the account has is
/// what the server says. Not in CI, because it needs a gigabyte.
#[test]
fn nautilus_trader_agrees_with_the_server() {
    let reason = "nautilus_trader is not installed (.ci/clob --nautilus does it), so not tried";
    let installed = nightly_client("clob-nautilus", "installed", NAUTILUS_VARIABLE, reason);
    let Some(installed) = installed else { return };
    let node = |server: &ServerProcess, wallet: &str| {
        let mut python = Command::new(installed.join("bin/python"));
        python.arg(folder().join("with_nautilus_trader.py")).args([&*host(server), wallet]);
        python
    };
    let printed = |node: &mut Command| {
        let ran = node.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
        let [output, errors] = [ran.stdout, ran.stderr].map(|it| String::from_utf8(it).unwrap());
        // What it cannot read, it only logs.
        let is_read = !errors.contains("Error handling websocket message");
        assert!(ran.status.success() && is_read, "{output}\n{errors}");
        output.trim_end().to_owned()
    };
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path(), "when-asked");
    let known = printed(&mut node(&server, "0"));
    let known = printed(node(&server, "3").arg(known));
    server.kill();
    let server = start(data.path(), "at-once");
    let known = printed(node(&server, "2").arg(known));
    let known: serde_json::Value = serde_json::from_str(&known).unwrap();
    assert!(known["compared"].as_u64() >= Some(170), "{known}");
}

/// The examples of the guide print what they should.
#[test]
fn the_examples_of_the_guide_work() {
    let Some(clients) = clients() else { return };
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide/clob.md");
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path(), "when-asked");
    let printed = |code: &String| {
        let code = code.replace("http://127.0.0.1:8080", &host(&server));
        output_of(Command::new(clients.join("bin/python")).args(["-c", &code]))
    };
    let [book, balance] = &blocks_of_python(&page)[..] else { panic!("other examples") };
    let output = printed(book);
    assert!(output.contains("'price'") && output.contains("'size'"), "{output}");
    let output = printed(balance);
    assert!(output.starts_with("{'balance': '1000000000', 'allowances': {'0x"), "{output}");
}

/// The same decisions with a client and with this server's own interface have the same results.
#[test]
fn decisions_cost_the_same_as_with_our_own_interface() {
    let Some(clients) = clients() else { return };
    let data = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    // Enough cash that most orders are taken.
    let rich = ["--starting-balance", "20000"];
    let still = ["--venue", "simulated:1", "--venue-speed", "0.000001", "--clob", "on"];
    let unlimited = ["--address-limits", "off", "--tier", "free=unlimited/unlimited/2/5"];
    let flags = [&still[..], &unlimited, &rich].concat();
    let [server, own] =
        data.each_ref().map(|data| ServerProcess::start(BINARY, data.path(), &flags));
    let mut token = command(BINARY);
    let token = output_of(token.args(["token", "--subject", "own", "--data"]).arg(data[1].path()));
    let mut python = Command::new(clients.join("bin/python"));
    python.arg(folder().join("decisions.py")).args([host(&server), host(&own)]);
    eprintln!("{}", output_of(python.arg(token.trim_end())));
}
