//! Writes tapes, on its own thread, without ever blocking its callers.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::sync::oneshot;

use super::file::{self, FILES_MAX, Folder};
use super::line;
use super::queue::{Batch, Entry, Payload, QUEUE_BYTES_MAX, Queue};
use paperbourse_core::ids::Timestamp;

/// Maximum time before a line is flushed to the operating system.
pub const FLUSH_INTERVAL: Duration = Duration::from_millis(500);

/// Bytes reserved for the last line and the ends of files.
const ENDING_BYTES: u64 = 4_096;

/// Size limits of a tape.
#[derive(Clone, Debug)]
pub struct TapeLimits {
    /// Compressed size in bytes after which a new file begins.
    pub rotate_bytes: u64,
    /// Age of a file after which a new one begins.
    pub rotate_after: Duration,
    /// Maximum size of all files together in bytes, including those of earlier sessions.
    pub bytes_max: u64,
    /// Maximum number of bytes waiting to be written.
    pub queue_bytes_max: usize,
}

impl Default for TapeLimits {
    fn default() -> Self {
        Self {
            rotate_bytes: 64 << 20,
            rotate_after: Duration::from_hours(1),
            bytes_max: 10 << 30,
            queue_bytes_max: QUEUE_BYTES_MAX,
        }
    }
}

/// The reason why recording stopped. Everything written so far can be played.
#[derive(Debug, thiserror::Error)]
pub enum TapeError {
    /// A file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Disk {
        /// The operation.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The tape has reached [`TapeLimits::bytes_max`].
    #[error("the tape is full: its files may hold {bytes_max} bytes")]
    Full {
        /// The limit.
        bytes_max: u64,
    },
    /// The tape has [`FILES_MAX`] files.
    #[error("the tape is full: it may have {FILES_MAX} files")]
    TooManyFiles,
}

/// The totals of a session so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TapeTotals {
    /// Number of lines written.
    pub lines: u64,
    /// Size of all payloads, in bytes.
    pub payload_bytes: u64,
    /// Compressed size of this session on disk, in bytes.
    pub file_bytes: u64,
    /// Number of files of this session.
    pub files: u64,
    /// Number of gaps, which occur when the disk is too slow.
    pub gaps: u64,
    /// Number of lines lost in gaps.
    pub lines_lost: u64,
}

impl fmt::Display for TapeTotals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lines, payload_bytes, file_bytes, files, gaps, lines_lost } = self;
        write!(
            formatter,
            "{lines} lines of {payload_bytes} bytes, {file_bytes} bytes in {files} files on disk; \
             {gaps} gaps of {lines_lost} lines",
        )
    }
}

#[derive(Default)]
struct Counters {
    lines: AtomicU64,
    payload_bytes: AtomicU64,
    file_bytes: AtomicU64,
    files: AtomicU64,
}

/// A recorder of one session, which ends when the recorder is finished or dropped.
pub struct Recorder {
    sender: TapeSender,
    ended: oneshot::Receiver<Result<(), TapeError>>,
}

/// A handle that sends lines to a recorder. Lines sent after the recorder has ended are dropped.
#[derive(Clone)]
pub struct TapeSender {
    queue: Arc<Queue>,
    counters: Arc<Counters>,
    began: Instant,
    began_at: Timestamp,
}

impl TapeSender {
    /// Records a line with a payload that arrived at `at`.
    pub fn send(&self, at: Instant, folder: Folder, fields: String, payload: Payload) {
        self.queue.push(Entry { at: self.time(at), folder, fields, payload });
    }

    /// Returns the timestamp of an instant. The wall clock is read only at the start of the
    /// session, so the timestamps of a tape never go back.
    pub fn time(&self, at: Instant) -> Timestamp {
        let elapsed = at.saturating_duration_since(self.began);
        let elapsed = i64::try_from(elapsed.as_nanos()).unwrap_or(i64::MAX);
        Timestamp::from_nanos(self.began_at.nanos().saturating_add(elapsed))
    }

    /// Returns the totals so far.
    pub fn totals(&self) -> TapeTotals {
        let (gaps, lines_lost) = self.queue.losses();
        TapeTotals {
            lines: self.counters.lines.load(Ordering::Relaxed),
            payload_bytes: self.counters.payload_bytes.load(Ordering::Relaxed),
            file_bytes: self.counters.file_bytes.load(Ordering::Relaxed),
            files: self.counters.files.load(Ordering::Relaxed),
            gaps,
            lines_lost,
        }
    }

    /// Returns the number of gaps so far.
    pub fn gap_count(&self) -> u64 {
        self.queue.losses().0
    }
}

impl Recorder {
    /// Starts a session in this folder, and creates the folder if it is missing.
    pub fn start(directory: &Path, limits: TapeLimits) -> Result<Self, TapeError> {
        let began_at = Timestamp::now();
        let writer = Writer::new(directory, limits, began_at)?;
        let queue = Arc::new(Queue::new(writer.limits.queue_bytes_max));
        let (end, ended) = oneshot::channel();
        let sender = TapeSender {
            queue: queue.clone(),
            counters: writer.counters.clone(),
            began: Instant::now(),
            began_at,
        };
        let thread = std::thread::Builder::new().name("tape".to_owned());
        let spawned = thread.spawn(move || {
            let result = writer.run(&queue);
            // Senders may outlive the writer, and their lines must not pile up.
            queue.close("the writer has ended");
            let _ = end.send(result);
        });
        spawned.map_err(|source| failed("start the writer thread for", directory, source))?;
        Ok(Self { sender, ended })
    }

    /// Returns a handle for sending lines.
    pub fn sender(&self) -> TapeSender {
        self.sender.clone()
    }

    /// Waits until recording fails, and returns the error.
    pub async fn failed(&mut self) -> TapeError {
        match (&mut self.ended).await {
            Ok(Err(error)) => error,
            // Only `finish` and `drop` close the queue, and both need the recorder.
            Ok(Ok(())) | Err(_) => unreachable!("the writer ends only when it is closed"),
        }
    }

    /// Writes all queued lines and ends the session.
    pub async fn finish(mut self, why: &str) -> (TapeTotals, Result<(), TapeError>) {
        self.sender.queue.close(why);
        let result = (&mut self.ended).await.expect("the writer always sends its result");
        (self.sender.totals(), result)
    }
}

impl TapeError {
    /// Returns whether a size limit was reached, as opposed to a failure.
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::TooManyFiles)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.sender.queue.close("given up");
    }
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> TapeError {
    TapeError::Disk { action, path: path.to_owned(), source }
}

struct Writer {
    directory: PathBuf,
    session: String,
    limits: TapeLimits,
    files: [Option<TapeFile>; Folder::ALL.len()],
    /// Number of files so far, by folder.
    file_numbers: [u32; Folder::ALL.len()],
    /// Number of files of other sessions.
    other_files: usize,
    /// Size of all closed files in bytes, including those of other sessions.
    closed_bytes: u64,
    /// Size of the files of other sessions, in bytes.
    other_bytes: u64,
    /// Uncompressed bytes written since the last flush.
    unflushed_bytes: u64,
    flushed_at: Instant,
    line_number: u64,
    line: Vec<u8>,
    counters: Arc<Counters>,
}

struct TapeFile {
    path: PathBuf,
    encoder: GzEncoder<Counted>,
    opened_at: Instant,
    /// Whether there are unflushed lines.
    is_dirty: bool,
}

/// A file that counts its bytes.
struct Counted {
    file: File,
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Writer {
    fn new(directory: &Path, limits: TapeLimits, at: Timestamp) -> Result<Self, TapeError> {
        for folder in Folder::ALL {
            let path = directory.join(folder.as_str());
            fs::create_dir_all(&path).map_err(|source| failed("create", &path, source))?;
        }
        let sessions = file::sessions(directory)
            .map_err(|source| failed("list the sessions in", directory, source))?;
        let (mut other_files, mut other_bytes) = (0, 0);
        for path in sessions.values().flatten().flatten() {
            other_files += 1;
            let metadata =
                fs::metadata(path).map_err(|source| failed("read the size of", path, source))?;
            other_bytes += metadata.len();
        }
        // Not even the line that ends a session would fit, and each attempt to record would add
        // one.
        if other_bytes + 2 * ENDING_BYTES > limits.bytes_max {
            return Err(TapeError::Full { bytes_max: limits.bytes_max });
        }
        if other_files + Folder::ALL.len() > FILES_MAX {
            return Err(TapeError::TooManyFiles);
        }
        // Another session may have started in the same millisecond, or while the clock was ahead.
        let newest = sessions.keys().next_back();
        let mut at = at;
        while newest.is_some_and(|newest| *newest >= file::session_name(at)) {
            at = Timestamp::from_millis(at.millis() + 1);
        }
        Ok(Self {
            directory: directory.to_owned(),
            session: file::session_name(at),
            limits,
            files: Default::default(),
            file_numbers: Default::default(),
            other_files,
            closed_bytes: other_bytes,
            other_bytes,
            unflushed_bytes: 0,
            flushed_at: Instant::now(),
            line_number: 0,
            line: Vec::new(),
            counters: Arc::default(),
        })
    }

    /// Writes entries until the queue is closed.
    fn run(mut self, queue: &Queue) -> Result<(), TapeError> {
        loop {
            let timeout = FLUSH_INTERVAL.saturating_sub(self.flushed_at.elapsed());
            let Batch { entries, end } = queue.take(timeout);
            for entry in &entries {
                if let Err(error) = self.write(entry) {
                    // `check_room` has kept room for the last line.
                    if error.is_full() {
                        self.end(entry.at, &error.to_string())?;
                    }
                    return Err(error);
                }
            }
            if let Some(why) = end {
                return self.end(Timestamp::now(), &why);
            }
            if self.flushed_at.elapsed() >= FLUSH_INTERVAL {
                self.flush()?;
            }
        }
    }

    fn write(&mut self, entry: &Entry) -> Result<(), TapeError> {
        self.line.clear();
        line::write(&mut self.line, self.line_number + 1, entry);
        self.check_room(self.line.len() as u64)?;
        let file_count: u32 = self.file_numbers.iter().sum();
        let file_count = self.other_files + usize::try_from(file_count).unwrap_or(usize::MAX);
        if self.files[entry.folder as usize].is_none() && file_count >= FILES_MAX {
            return Err(TapeError::TooManyFiles);
        }
        self.append(entry.folder)?;
        self.counters.lines.fetch_add(1, Ordering::Relaxed);
        let payload_bytes = entry.payload.bytes().len() as u64;
        self.counters.payload_bytes.fetch_add(payload_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Checks that there is room for a line of this length and the end of the session.
    fn check_room(&mut self, line_bytes: u64) -> Result<(), TapeError> {
        let bytes_max = self.limits.bytes_max;
        let has_room = |writer: &Self| {
            writer.file_bytes() + writer.unflushed_bytes + line_bytes + ENDING_BYTES <= bytes_max
        };
        if !has_room(self) && self.unflushed_bytes > 0 {
            // The compressed size of unflushed lines is known only after a flush.
            self.flush()?;
        }
        if has_room(self) { Ok(()) } else { Err(TapeError::Full { bytes_max }) }
    }

    /// Returns the size of all files of the tape on disk, in bytes.
    fn file_bytes(&self) -> u64 {
        let open = self.files.iter().flatten().map(|file| file.encoder.get_ref().bytes);
        self.closed_bytes + open.sum::<u64>()
    }

    /// Appends the current line to the file of its folder.
    fn append(&mut self, folder: Folder) -> Result<(), TapeError> {
        let place = folder as usize;
        if self.files[place].as_ref().is_some_and(|file| file.is_due_for_rotation(&self.limits)) {
            self.close(place)?;
        }
        let file = match &mut self.files[place] {
            Some(file) => file,
            none => {
                self.file_numbers[place] += 1;
                let name = file::file_name(&self.session, self.file_numbers[place]);
                let path = self.directory.join(folder.as_str()).join(name);
                self.counters.files.fetch_add(1, Ordering::Relaxed);
                none.insert(TapeFile::create(path)?)
            }
        };
        let written = file.encoder.write_all(&self.line);
        written.map_err(|source| failed("write", &file.path, source))?;
        file.is_dirty = true;
        self.line_number += 1;
        self.unflushed_bytes += self.line.len() as u64;
        Ok(())
    }

    /// Flushes all files to the operating system, and closes those due for rotation.
    fn flush(&mut self) -> Result<(), TapeError> {
        for file in self.files.iter_mut().flatten().filter(|file| file.is_dirty) {
            let flushed = file.encoder.flush();
            flushed.map_err(|source| failed("write", &file.path, source))?;
            file.is_dirty = false;
        }
        for place in 0..self.files.len() {
            // A quiet file must rotate in time too.
            if self.files[place].as_ref().is_some_and(|file| file.is_due_for_rotation(&self.limits))
            {
                self.close(place)?;
            }
        }
        (self.unflushed_bytes, self.flushed_at) = (0, Instant::now());
        self.counters.file_bytes.store(self.file_bytes() - self.other_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Closes a file and syncs it to disk.
    fn close(&mut self, place: usize) -> Result<(), TapeError> {
        let Some(TapeFile { path, encoder, .. }) = self.files[place].take() else { return Ok(()) };
        let ended = encoder.finish().map_err(|source| failed("write", &path, source))?;
        self.closed_bytes += ended.bytes;
        ended.file.sync_data().map_err(|source| failed("sync", &path, source))
    }

    /// Writes the last line of the session and closes all files.
    fn end(&mut self, at: Timestamp, why: &str) -> Result<(), TapeError> {
        let why = serde_json::to_string(why).expect("text is JSON");
        let fields = format!(r#""kind":"end","why":{why}"#);
        let entry = Entry { at, folder: Folder::Ws, fields, payload: Payload::None };
        self.line.clear();
        line::write(&mut self.line, self.line_number + 1, &entry);
        self.append(Folder::Ws)?;
        for place in 0..self.files.len() {
            self.close(place)?;
        }
        self.flush()
    }
}

impl TapeFile {
    fn create(path: PathBuf) -> Result<Self, TapeError> {
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = file.map_err(|source| failed("create", &path, source))?;
        let counted = Counted { file, bytes: 0 };
        let encoder = GzEncoder::new(counted, Compression::default());
        Ok(Self { path, encoder, opened_at: Instant::now(), is_dirty: false })
    }

    fn is_due_for_rotation(&self, limits: &TapeLimits) -> bool {
        self.encoder.get_ref().bytes >= limits.rotate_bytes
            || self.opened_at.elapsed() >= limits.rotate_after
    }
}
