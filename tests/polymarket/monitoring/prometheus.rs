//! A Prometheus with the configuration of `perf/monitoring`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::{monitoring, until};

/// A Prometheus, killed on drop.
pub(super) struct Prometheus {
    child: Child,
    address: SocketAddr,
    _folder: TempDir,
}

/// The name of an alert that fires, and the address that it is about.
pub(super) type Firing = (String, String);

impl Prometheus {
    /// Scrapes these addresses each second. Alerts fire as soon as they are true.
    pub(super) fn start(targets: &[SocketAddr]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let targets: Vec<String> = targets.iter().map(|target| format!("{target:?}")).collect();
        let targets = targets.iter().map(|target| format!("\"{target}\"")).collect::<Vec<_>>();
        let configuration = fs::read_to_string(monitoring("prometheus.yml")).unwrap();
        let configuration = configuration
            .replace("_interval: 5s", "_interval: 1s")
            .replace("\"127.0.0.1:9090\"", &targets.join(", "));
        assert!(configuration.contains(&targets.join(", ")), "{configuration}");
        let rules = fs::read_to_string(monitoring("alerts.yml")).unwrap();
        let at_once = rules.lines().filter(|line| !line.trim().starts_with("for: "));
        fs::write(folder.path().join("prometheus.yml"), configuration).unwrap();
        fs::write(folder.path().join("alerts.yml"), at_once.collect::<Vec<_>>().join("\n"))
            .unwrap();
        // Another process may take the port in between.
        loop {
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = free.local_addr().unwrap();
            drop(free);
            let mut child = Command::new("prometheus")
                .arg("--config.file")
                .arg(folder.path().join("prometheus.yml"))
                .arg("--storage.tsdb.path")
                .arg(folder.path().join("data"))
                .arg(format!("--web.listen-address={address}"))
                .args(["--log.level", "warn"])
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let is_ready = until(|| {
                if child.try_wait().unwrap().is_some() {
                    return Ok(false);
                }
                let answer = get(address, "/-/ready").unwrap_or_default();
                if answer.starts_with("HTTP/1.0 200") { Ok(true) } else { Err(answer) }
            });
            if is_ready {
                return Self { child, address, _folder: folder };
            }
        }
    }

    /// The series that an expression returns now.
    #[track_caller]
    pub(super) fn query(&self, expression: &str) -> Vec<Value> {
        let mut path = String::from("/api/v1/query?query=");
        for byte in expression.bytes() {
            write!(path, "%{byte:02X}").unwrap();
        }
        let answer = self.json(&path);
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"].as_array().unwrap().clone()
    }

    /// The alerts that fire now.
    pub(super) fn firing(&self) -> BTreeSet<Firing> {
        let answer = self.json("/api/v1/alerts");
        let alerts = answer["data"]["alerts"].as_array().unwrap().iter();
        let firing = alerts.filter(|alert| alert["state"] == "firing");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        firing
            .map(|alert| (text(&alert["labels"]["alertname"]), text(&alert["labels"]["instance"])))
            .collect()
    }

    #[track_caller]
    fn json(&self, path: &str) -> Value {
        let answer = get(self.address, path).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }
}

/// In HTTP/1.0, so that the answer is not in chunks.
fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
