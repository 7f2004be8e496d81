//! The record of trouble, in a file that `paperbourse trouble` reads.
//!
//! A dedicated thread writes the lines. Requests never wait for it: if the disk is too slow, or the
//! file is full, lines are dropped and counted.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;

use paperbourse_clob::trouble::Line;

/// The name of the file in the data folder.
pub const FILE_NAME: &str = "trouble.jsonl";

/// Maximum size of the file, in bytes.
pub const RECORD_BYTES_MAX: u64 = 256 << 20;

/// Maximum number of lines that wait to be written.
const LINES_MAX: usize = 8_192;

/// Accepts lines from all workers.
#[derive(Debug)]
pub struct Record {
    lines: SyncSender<Line>,
    dropped: Arc<AtomicU64>,
}

impl Record {
    /// Opens the record in a data folder and starts the thread that writes it. Lines are added to
    /// those of earlier runs.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(folder.join(FILE_NAME))?;
        let (lines, received) = sync_channel(LINES_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = dropped.clone();
        let written_bytes = file.metadata()?.len();
        thread::Builder::new()
            .name("trouble".to_owned())
            .spawn(move || Writer::new(file, written_bytes, counted).run(&received))?;
        Ok(Self { lines, dropped })
    }

    /// Queues a line, or drops and counts it if the queue is full.
    pub(super) fn add(&self, line: Line) {
        if self.lines.try_send(line).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of lines that were dropped.
    pub(super) fn dropped_count(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

struct Writer {
    file: BufWriter<File>,
    written_bytes: u64,
    dropped: Arc<AtomicU64>,
    has_failed: bool,
    text: Vec<u8>,
}

impl Writer {
    fn new(file: File, written_bytes: u64, dropped: Arc<AtomicU64>) -> Self {
        let file = BufWriter::new(file);
        Self { file, written_bytes, dropped, has_failed: false, text: Vec::new() }
    }

    /// Writes lines until nobody can send any. Whenever none waits, all are in the file.
    fn run(mut self, received: &Receiver<Line>) {
        loop {
            let line = match received.try_recv() {
                Ok(line) => line,
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {
                    let flushed = self.file.flush();
                    self.note(flushed);
                    let Ok(line) = received.recv() else { break };
                    line
                }
            };
            self.write(&line);
        }
    }

    fn write(&mut self, line: &Line) {
        self.text.clear();
        serde_json::to_writer(&mut self.text, line).expect("lines are plain data");
        self.text.push(b'\n');
        let end = self.written_bytes + self.text.len() as u64;
        if end > RECORD_BYTES_MAX {
            if self.dropped.fetch_add(1, Ordering::Relaxed) == 0 {
                tracing::warn!("{FILE_NAME} is full: no more trouble is recorded; move it away");
            }
            return;
        }
        self.written_bytes = end;
        let written = self.file.write_all(&self.text);
        self.note(written);
    }

    /// Logs the first failure.
    fn note(&mut self, result: io::Result<()>) {
        let Err(error) = result else { return };
        self.dropped.fetch_add(1, Ordering::Relaxed);
        if !std::mem::replace(&mut self.has_failed, true) {
            tracing::warn!("failed to write {FILE_NAME}: {error}");
        }
    }
}
