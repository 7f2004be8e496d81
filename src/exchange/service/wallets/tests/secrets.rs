//! A search for the secrets of wallets in all that is written.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use paperbourse_store::snapshot::{SnapshotConfig, SnapshotKeeper};

/// Keeps all that is logged on this thread, with every field.
#[derive(Default)]
struct Log(Arc<Mutex<String>>);

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        write!(self.0.lock().unwrap(), "{span:?}").unwrap();
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        write!(self.0.lock().unwrap(), "{values:?}").unwrap();
    }

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        writeln!(self.0.lock().unwrap(), "{event:?}").unwrap();
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// The content of all files below a folder.
fn files(folder: &Path, contents: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, contents);
        } else {
            contents.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
}

#[test]
fn no_secret_is_in_a_file_or_a_log() {
    let data = TempDir::new().unwrap();
    let log = Log::default();
    let logged = log.0.clone();
    let mut secrets: Vec<Vec<u8>> = vec![MASTER_KEY.to_vec()];
    tracing::subscriber::with_default(log, || {
        let world = World::open(data.path());
        world.block_on(async {
            let mut round = 0;
            while round < 3 || world.journal.segment() == Some(1) {
                let credentials = world.create(&auth(1, round % 3)).await.unwrap();
                for text in texts(&credentials) {
                    tracing::debug!(?credentials, round, "created");
                    secrets.push(text.into_bytes());
                }
                secrets.push(URL_SAFE.decode(credentials.secret()).unwrap());
                let caller = world.call(wallet(1), &credentials).unwrap();
                let sent = Sent::new(wallet(1), &credentials, NOW_S, ORDER);
                tracing::debug!(headers = ?sent.headers(), "called");
                if round % 2 == 0 {
                    world.service.delete_api_key(&caller, world.context()).await.unwrap();
                }
                round += 1;
            }
        });
        let config = SnapshotConfig {
            journal_bytes: 1,
            interval: Duration::from_secs(1),
            cpu_percent: 100,
            archive_bytes: u64::MAX,
        };
        let keeper = SnapshotKeeper::start(world.folder.clone(), world.journal.clone(), config);
        while world.folder.archived_numbers().unwrap().is_empty() {
            std::thread::yield_now();
        }
        drop(keeper);
    });
    let mut contents = vec![("log".to_owned(), logged.lock().unwrap().clone().into_bytes())];
    assert!(contents[0].1.len() > 1_000, "the log is kept");
    files(data.path(), &mut contents);
    for kind in ["segment", "snapshot"] {
        assert!(contents.iter().any(|(path, _)| path.ends_with(kind)), "no {kind}");
    }
    // The search finds what may be there: the name of a key, and in the log the API key.
    let shown = format!("0x{}, nonce 0", "01".repeat(20)).into_bytes();
    let has = |content: &[u8], part: &[u8]| content.windows(part.len()).any(|it| it == part);
    assert!(contents.iter().any(|(_, content)| has(content, &shown)));
    for (path, content) in &contents {
        for (index, secret) in secrets.iter().enumerate() {
            // Of each wallet's texts, the API key comes first. It is no secret, and no file has it.
            if path == "log" && index % 4 == 1 {
                continue;
            }
            assert!(!has(content, secret), "{path} has secret {index}");
        }
    }
}
