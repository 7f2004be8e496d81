//! Three NATS servers on this machine that form a cluster, killed when dropped. `.ci/brokers`
//! installs the program.

use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::address::own_listener;
use crate::link::Link;
use crate::process::kill;
use crate::{Connection, NOBODY, PATIENCE, Request};

/// How many brokers there are.
pub const BROKERS: usize = 3;

/// How often free ports are looked for. Another process may take one before a broker does.
const STARTS_MAX: usize = 10;

/// The time between two looks at a broker that starts.
const PAUSE: Duration = Duration::from_millis(20);

/// Whoever holds this runs brokers. Several clusters at once, on a machine with few cores and one
/// disk, answer so slowly that they lose their leaders.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The program of a broker: `PAPERBOURSE_BROKER`, or what `.ci/brokers` installed; `None` if there
/// is none, which fails in CI.
pub fn program() -> Option<PathBuf> {
    if let Some(program) = std::env::var_os("PAPERBOURSE_BROKER") {
        return Some(program.into());
    }
    let test = std::env::current_exe().unwrap();
    let installed = test.ancestors().map(|folder| folder.join("brokers/bin/nats-server"));
    let found = installed.into_iter().find(|program| program.exists());
    if found.is_none() {
        let reason = "there is no NATS server (.ci/brokers installs one), so no replicated log was \
                      tested on brokers";
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{reason}");
        eprintln!("SKIPPED: {reason}");
    }
    found
}

/// What the brokers' configuration says.
#[derive(Clone, Copy)]
struct Settings<'a> {
    sync_interval: &'a str,
    lines: &'a str,
    routes: Routes,
}

/// How brokers reach each other.
#[derive(Clone, Copy)]
enum Routes {
    Direct,
    /// Over links.
    Linked,
}

/// Three brokers; the only ones of this process.
#[derive(Debug)]
pub struct Brokers {
    program: PathBuf,
    folder: PathBuf,
    members: Vec<Broker>,
    /// Those of each broker to itself and the others; none if they are not linked.
    routes: Vec<Vec<Link>>,
    /// Given back after the brokers were killed.
    _turn: MutexGuard<'static, ()>,
}

#[derive(Debug)]
struct Broker {
    child: Option<Child>,
    address: SocketAddr,
    monitoring: SocketAddr,
}

impl Brokers {
    /// Starts brokers whose files are in this folder, once those of other tests have ended, and
    /// waits until they serve. Their configuration says this of when they sync, such as `always`,
    /// and has these lines besides.
    #[track_caller]
    pub fn start(program: &Path, folder: &Path, sync_interval: &str, lines: &str) -> Self {
        let settings = Settings { sync_interval, lines, routes: Routes::Direct };
        Self::start_with(program, folder, settings)
    }

    /// Starts brokers that reach each other over links, which can be cut.
    #[track_caller]
    pub fn start_linked(program: &Path, folder: &Path) -> Self {
        let settings = Settings { sync_interval: "always", lines: "", routes: Routes::Linked };
        Self::start_with(program, folder, settings)
    }

    #[track_caller]
    fn start_with(program: &Path, folder: &Path, settings: Settings<'_>) -> Self {
        for _ in 0..STARTS_MAX {
            let mut brokers = Self::on_free_ports(program, folder, settings);
            (0..BROKERS).for_each(|number| brokers.spawn(number));
            if brokers.wait().is_ok() {
                return brokers;
            }
        }
        panic!("no brokers after {STARTS_MAX} starts: {}", Self::log(folder, 0));
    }

    fn on_free_ports(program: &Path, folder: &Path, settings: Settings<'_>) -> Self {
        let Settings { sync_interval, lines, routes } = settings;
        let is_encrypted = lines.contains("tls {");
        let listener = |index| match index / BROKERS {
            // The certificate is for this address.
            1 if is_encrypted => TcpListener::bind("127.0.0.1:0").unwrap(),
            _ => own_listener(),
        };
        let listeners: Vec<TcpListener> = (0..3 * BROKERS).map(listener).collect();
        let ports: Vec<SocketAddr> = listeners.iter().map(|it| it.local_addr().unwrap()).collect();
        let to_all = |_| ports[..BROKERS].iter().map(|&port| Link::to(port)).collect();
        let links: Vec<Vec<Link>> = match routes {
            Routes::Direct => Vec::new(),
            Routes::Linked => (0..BROKERS).map(to_all).collect(),
        };
        let members = (0..BROKERS).map(|number| {
            let others = match links.get(number) {
                None => ports[..BROKERS].to_vec(),
                Some(links) => links.iter().map(|link| link.address).collect(),
            };
            let mut routes = String::new();
            for other in others {
                write!(routes, "\"nats://{other}\", ").unwrap();
            }
            // Linked brokers are to use the links, and not what others say of themselves.
            let advertised = if links.is_empty() { ports[number] } else { NOBODY };
            let (route, address, monitoring) =
                (ports[number], ports[BROKERS + number], ports[2 * BROKERS + number]);
            let store = folder.join(format!("broker-{number}"));
            let text = format!(
                "server_name: broker-{number}\nlisten: \"{address}\"\nhttp: \"{monitoring}\"\n\
                 jetstream {{ store_dir: \"{}\", sync_interval: {sync_interval} }}\n\
                 cluster {{ name: test, listen: \"{route}\", advertise: \"{advertised}\", \
                 routes: [{routes}] }}\n{lines}\n",
                store.display()
            );
            fs::write(folder.join(format!("broker-{number}.conf")), text).unwrap();
            Broker { child: None, address, monitoring }
        });
        Self {
            program: program.to_owned(),
            folder: folder.to_owned(),
            members: members.collect(),
            routes: links,
            // A test that failed has killed its brokers all the same.
            _turn: ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    fn spawn(&mut self, number: usize) {
        let file = |ending| self.folder.join(format!("broker-{number}.{ending}"));
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(file("conf")).arg("-l").arg(file("log"));
        // What is wrong with its configuration, it says here.
        let errors = fs::File::create(file("errors")).unwrap();
        let child = command.stdout(Stdio::null()).stderr(errors).spawn();
        self.members[number].child = Some(child.unwrap());
    }

    /// Waits until all brokers are healthy. An error if one has ended.
    fn wait(&mut self) -> Result<(), ()> {
        let began = Instant::now();
        for (number, broker) in self.members.iter_mut().enumerate() {
            while !is_healthy(broker.monitoring) {
                if broker.child.as_mut().unwrap().try_wait().unwrap().is_some() {
                    return Err(());
                }
                let log = || Self::log(&self.folder, number);
                assert!(began.elapsed() < 2 * PATIENCE, "broker {number}: {}", log());
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    fn log(folder: &Path, number: usize) -> String {
        let read = |ending| fs::read_to_string(folder.join(format!("broker-{number}.{ending}")));
        ["log", "errors"].map(|ending| read(ending).unwrap_or_default()).concat()
    }

    /// The addresses for clients.
    pub fn addresses(&self) -> Vec<String> {
        self.members.iter().map(|broker| format!("nats://{}", broker.address)).collect()
    }

    /// The monitoring addresses.
    pub fn monitoring(&self) -> Vec<String> {
        self.members.iter().map(|broker| format!("http://{}", broker.monitoring)).collect()
    }

    /// The folder with the files of a broker.
    pub fn store(&self, number: usize) -> PathBuf {
        self.folder.join(format!("broker-{number}"))
    }

    /// The files with the messages of a stream, at this broker, whose names end like this. There
    /// must be some.
    #[track_caller]
    pub fn files(&self, number: usize, stream: &str, ending: &str) -> Vec<PathBuf> {
        let all = files_below(&self.store(number));
        let of_stream = format!("streams/{stream}/msgs");
        let is_wanted = |path: &&PathBuf| {
            let path = path.to_string_lossy();
            path.contains(&of_stream) && path.ends_with(ending)
        };
        let found: Vec<PathBuf> = all.iter().filter(is_wanted).cloned().collect();
        assert!(!found.is_empty(), "a file {ending} of {stream}: {all:?}");
        found
    }

    /// Sends a signal to a broker.
    pub fn signal(&self, number: usize, name: &str) {
        let id = self.members[number].child.as_ref().unwrap().id();
        assert!(kill(name, &id.to_string()).status().unwrap().success());
    }

    /// Cuts a broker off from the others, but not from its clients.
    pub fn cut_off(&self, number: usize) {
        self.routes_of(number).for_each(Link::cut);
    }

    /// Joins a broker with the others again.
    pub fn join(&self, number: usize) {
        self.routes_of(number).for_each(Link::mend);
    }

    /// The links of a broker to the others, and theirs to it.
    fn routes_of(&self, number: usize) -> impl Iterator<Item = &Link> {
        let others = self.routes.iter().map(move |links| &links[number]);
        self.routes[number].iter().chain(others)
    }

    /// Changes when a broker syncs, from its next start on.
    pub fn set_sync_interval(&self, number: usize, interval: &str) {
        let path = self.folder.join(format!("broker-{number}.conf"));
        let text = fs::read_to_string(&path).unwrap();
        let (before, rest) = text.split_once("sync_interval: ").unwrap();
        let (_, after) = rest.split_once(' ').unwrap();
        fs::write(path, format!("{before}sync_interval: {interval} {after}")).unwrap();
    }

    /// Kills a broker, as in a crash.
    pub fn kill(&mut self, number: usize) {
        let mut child = self.members[number].child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Lets a broker end in order.
    pub fn terminate(&mut self, number: usize) {
        let mut child = self.members[number].child.take().unwrap();
        assert!(kill("-TERM", &child.id().to_string()).status().unwrap().success());
        child.wait().unwrap();
    }

    /// Starts a broker that has ended, and waits until all are healthy.
    #[track_caller]
    pub fn restart(&mut self, number: usize) {
        self.start_again([number]);
    }

    /// Starts all brokers, which have ended, and waits until they are healthy.
    #[track_caller]
    pub fn restart_all(&mut self) {
        self.start_again(0..BROKERS);
    }

    #[track_caller]
    fn start_again(&mut self, numbers: impl IntoIterator<Item = usize> + Clone) {
        for _ in 0..STARTS_MAX {
            for number in numbers.clone() {
                let child = &mut self.members[number].child;
                let runs = child.as_mut().is_some_and(|it| it.try_wait().unwrap().is_none());
                if !runs {
                    self.spawn(number);
                }
            }
            if self.wait().is_ok() {
                return;
            }
            // Another process may hold one of their ports for a moment, such as a client.
            std::thread::sleep(PATIENCE / 30);
        }
        let logs: Vec<String> =
            numbers.into_iter().map(|number| Self::log(&self.folder, number)).collect();
        panic!("brokers do not start again: {}", logs.concat());
    }
}

impl Drop for Brokers {
    fn drop(&mut self) {
        for broker in &mut self.members {
            if let Some(mut child) = broker.child.take() {
                // It may have ended already.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// All files under this folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// Whether this broker knows a leader and has caught up with it.
fn is_healthy(monitoring: SocketAddr) -> bool {
    let Ok(mut connection) = Connection::try_open(monitoring) else { return false };
    connection.try_send(&Request::get("/healthz")).is_ok_and(|response| response.status == 200)
}
