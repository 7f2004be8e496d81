//! The recipes of the guide, as they stand, on a server with the limits that a newcomer has. While
//! one runs, the server is killed and started again.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use paperbourse_test_support::Client;
use paperbourse_test_support::process::{Process, ServerProcess, command};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{BINARY, libraries, sdk, text};

/// How long a limit of requests a second is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server that can be killed, and an account there.
struct World {
    data: TempDir,
    server: Option<ServerProcess>,
    address: SocketAddr,
    key: String,
}

impl World {
    fn start() -> Self {
        Self::at_speed("20")
    }

    fn at_speed(speed: &str) -> Self {
        let data = tempfile::tempdir().unwrap();
        let server = serve(data.path(), "127.0.0.1:0", speed);
        let mut minting = command(BINARY);
        let minted = minting.args(["token", "--subject", "author", "--data"]).arg(data.path());
        let token = String::from_utf8(minted.output().unwrap().stdout).unwrap();
        let mut client = Client::with_token(server.address, token.trim_end());
        let key = text(&client.post("/v1/keys/bootstrap", &json!({})).ok(201)["raw_key"]);
        Self { data, address: server.address, server: Some(server), key }
    }

    /// Kills the server and starts it again on its data, at its address.
    fn restart(&mut self) {
        self.server.take().unwrap().kill();
        self.server = Some(serve(self.data.path(), &self.address.to_string(), "20"));
    }

    fn get(&self, path: &str) -> Value {
        // The recipe may have used up what its key has in a second.
        let mut client = Client::with_key(self.address, &self.key);
        let asked = Instant::now();
        loop {
            let answer = client.get(path);
            if answer.status != 429 || asked.elapsed() > PATIENCE {
                return answer.ok(200);
            }
        }
    }
}

/// A server with the limits of every new one, whose prices move at this speed.
fn serve(data: &Path, address: &str, speed: &str) -> ServerProcess {
    let mut command = command(BINARY);
    command.args(["serve", "--listen", address, "--data"]).arg(data);
    command.args(["--venue", "simulated:1", "--venue-speed", speed, "--venue-delay", "off"]);
    Process::spawn(&mut command).ready()
}

/// A folder in which a recipe can run, and the command that runs it; `None` if its language is not
/// installed, which fails in CI.
fn runner(file: &str) -> Option<(TempDir, Command)> {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join(file);
    fs::copy(guide().join("bots").join(file), &copy).unwrap();
    let mut command = if Path::new(file).extension().unwrap() == "py" {
        Command::new(sdk("the recipes in Python were not run")?.join("bin/python"))
    } else {
        typescript(folder.path())?
    };
    command.arg(copy).current_dir(folder.path()).env("PYTHONDONTWRITEBYTECODE", "1");
    Some((folder, command))
}

/// Node in this folder, where it finds its libraries and takes TypeScript.
fn typescript(folder: &Path) -> Option<Command> {
    let modules = libraries()?.join("node_modules");
    std::os::unix::fs::symlink(modules, folder.join("node_modules")).unwrap();
    let mut node = Command::new("node");
    node.args(["--import", "tsx"]).current_dir(folder);
    Some(node)
}

fn guide() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide")
}

/// What a recipe printed until it was interrupted, once it had shown a sign of its work before and
/// after a crash of the server.
#[track_caller]
fn run(world: &mut World, command: &mut Command, is_sign: fn(&str) -> bool) -> Vec<String> {
    let url = format!("http://{}", world.address);
    // Any move of the price is worth a trade.
    command.env("BOURSE", url).env("KEY", &world.key).env("EDGE", "0");
    let mut recipe = Process::spawn(command);
    recipe.wait_for_line(is_sign);
    world.restart();
    let before = recipe.log_lines("").iter().filter(|line| is_sign(line)).count();
    recipe.wait_for_lines(before + 1, is_sign);
    recipe.signal("-INT");
    let status = recipe.wait();
    let lines = recipe.log_lines("");
    assert!(status.success(), "{status}: {lines:#?}");
    // Whoever keeps to the limits never gets to know them.
    let is_limited = |line: &String| line.contains("RATE_LIMIT");
    assert!(!lines.iter().any(is_limited), "{lines:#?}");
    lines
}

/// The number behind this word in the last line that has it.
#[track_caller]
fn last_number(lines: &[String], word: &str) -> f64 {
    let behind = |line: &String| line.split_once(word)?.1.trim().parse().ok();
    lines.iter().rev().find_map(behind).unwrap_or_else(|| panic!("no {word} in {lines:#?}"))
}

/// The shares that the account holds.
fn held(world: &World) -> f64 {
    let positions = world.get("/v1/account/positions");
    let positions = positions.as_array().unwrap().iter();
    positions.map(|it| text(&it["quantity"]).parse::<f64>().unwrap()).sum()
}

#[track_caller]
fn check_maker(file: &str) {
    let Some((_folder, mut command)) = runner(file) else { return };
    let mut world = World::start();
    let lines = run(&mut world, &mut command, |line| line.starts_with("fill "));
    let fill = |line: &String| line.strip_prefix("fill ")?.split(' ').next()?.parse().ok();
    let fills: Vec<usize> = lines.iter().filter_map(fill).collect();
    assert!(fills.iter().copied().eq(1..=fills.len()), "each fill once: {lines:#?}");
    // Its last fills may have happened after it was interrupted.
    let history = world.get("/v1/account/history");
    let made = history.as_array().unwrap().len();
    assert!(made >= fills.len(), "{made}: {lines:#?}");
    if made == fills.len() {
        let holds = last_number(&lines, "- holds ");
        assert!((holds - held(&world)).abs() < 1e-6, "{holds}: {lines:#?}");
    }
    let open = world.get("/v1/orders?status=PENDING");
    assert_eq!(open["orders"], json!([]), "it has left orders behind: {lines:#?}");
    let cancelled = lines.last().unwrap();
    assert!(cancelled.starts_with("cancelled "), "{lines:#?}");
}

#[track_caller]
fn check_taker(file: &str) {
    let Some((_folder, mut command)) = runner(file) else { return };
    let mut world = World::start();
    let lines = run(&mut world, &mut command, |line| line.contains("- holds "));
    let printed = lines.iter().filter(|line| line.contains("- holds ")).count();
    let history = world.get("/v1/account/history");
    let made = history.as_array().unwrap().len();
    // One may have been under way when it was interrupted.
    assert!(made == printed || made == printed + 1, "{made} trades: {lines:#?}");
    if made == printed {
        let holds = last_number(&lines, "- holds ");
        assert!((holds - held(&world)).abs() < 1e-6, "{holds}: {lines:#?}");
    }
}

#[track_caller]
fn check_recorder(file: &str) {
    let Some((folder, mut command)) = runner(file) else { return };
    let mut world = World::start();
    let lines = run(&mut world, &mut command, |line| line.ends_with(" prices"));
    let recorded = fs::read_to_string(folder.path().join("prices.jsonl")).unwrap();
    let prices: Vec<Value> =
        recorded.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut newest: HashMap<String, (Value, Value)> = HashMap::new();
    for price in &prices {
        assert!(price["best_bid"].is_string() || price["best_bid"].is_null(), "{price}");
        let made = (price["seq"].clone(), price["updated_at"].clone());
        let before = newest.insert(text(&price["condition_id"]), made.clone());
        assert_ne!(before, Some(made), "a price was recorded twice");
    }
    let markets = world.get("/v1/markets?active_only=true&limit=50");
    assert!(newest.len() * 2 > markets.as_array().unwrap().len(), "of {} markets", newest.len());
    assert!(prices.len() > newest.len(), "no price has changed");
    let said = lines.last().unwrap();
    assert_eq!(said, &format!("recorded {} prices", prices.len()));
}

#[test]
fn the_maker_in_python() {
    check_maker("maker.py");
}

#[test]
fn the_maker_in_typescript() {
    check_maker("maker.ts");
}

#[test]
fn the_taker_in_python() {
    check_taker("taker.py");
}

#[test]
fn the_taker_in_typescript() {
    check_taker("taker.ts");
}

#[test]
fn the_recorder_in_python() {
    check_recorder("recorder.py");
}

#[test]
fn the_recorder_in_typescript() {
    check_recorder("recorder.ts");
}

/// The block in this language of the page for the first bot.
fn first_bot(language: &str) -> String {
    let page = fs::read_to_string(guide().join("first-bot.md")).unwrap();
    let (_, block) = page.split_once(&format!("\n```{language}\n")).unwrap();
    block.split_once("\n```\n").unwrap().0.to_owned()
}

/// Runs the first bot twice: it buys once.
#[track_caller]
fn check_first_bot(mut command: Command) {
    // A price that has moved would make the second order another one.
    let world = World::at_speed("0.000001");
    let url = format!("http://{}", world.address);
    command.env("BOURSE", url).env("KEY", &world.key);
    let mut say = || {
        let ran = command.output().unwrap();
        let errors = String::from_utf8_lossy(&ran.stderr).into_owned();
        let is_told = errors.starts_with("RATE_LIMIT_EXCEEDED: ");
        assert!(ran.status.success() || is_told, "{errors}");
        String::from_utf8(ran.stdout).unwrap() + &errors
    };
    let first = say();
    assert!(first.starts_with("FILLED 10 at 0."), "{first}");
    // Two runs within a second are more than a free key has.
    let asked = Instant::now();
    let again = loop {
        let again = say();
        if !again.starts_with("RATE_LIMIT_EXCEEDED: ") || asked.elapsed() > PATIENCE {
            break again;
        }
    };
    assert_eq!(again, first);
    assert!((held(&world) - 10.0).abs() < 1e-6, "{first}");
}

#[test]
fn the_first_bot_in_python() {
    let Some(python) = sdk("the first bot in Python was not run") else { return };
    let mut command = Command::new(python.join("bin/python"));
    command.args(["-c", &first_bot("python")]);
    check_first_bot(command);
}

#[test]
fn the_first_bot_in_typescript() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut command) = typescript(folder.path()) else { return };
    fs::write(folder.path().join("first-bot.ts"), first_bot("typescript")).unwrap();
    command.arg("first-bot.ts");
    check_first_bot(command);
}

/// The types are right, and without them a recipe is JavaScript, so newer versions of Node run it
/// as it is.
#[test]
fn the_recipes_in_typescript_have_types() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut node) = typescript(folder.path()) else { return };
    fs::write(folder.path().join("first-bot.ts"), first_bot("typescript")).unwrap();
    for file in ["maker.ts", "taker.ts", "recorder.ts"] {
        fs::copy(guide().join("bots").join(file), folder.path().join(file)).unwrap();
    }
    node.args(["node_modules/typescript/bin/tsc", "--strict", "--noEmit", "--target", "es2023"]);
    node.args(["--module", "nodenext", "--types", "node", "--erasableSyntaxOnly"]);
    node.args(["maker.ts", "taker.ts", "recorder.ts", "first-bot.ts"]);
    let checked = node.output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}
