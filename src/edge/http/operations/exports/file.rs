//! A CSV file that is written page by page.

use std::future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;

use crate::http::connection::{CutOff, Source};
use crate::http::csv::Line;
use crate::ws::counts::OpenExport;
use paperbourse_exchange::service::ServiceError;
use paperbourse_exchange::shard::Refusal;

/// Maximum number of rows in a page. A page is read and sent before other requests get their turn.
const ROWS_PER_PAGE: usize = 100;

/// The pause before each page. Without it, an export to a fast client would take up a whole worker,
/// and the worker's other connections would wait for many pages: as long as any task is ready,
/// tokio checks for new input only every 61 turns.
const PAGE_PAUSE: Duration = Duration::from_millis(1);

/// Pause before a page is requested again from a busy shard.
const BUSY_PAUSE: Duration = Duration::from_millis(50);
/// Maximum number of retries of a page before the file is cut off.
const BUSY_RETRIES_MAX: u32 = 100;

/// Rows that are read page by page.
pub(super) trait List: Send + 'static {
    type Row: Send;

    /// The name that the file is saved under.
    const FILE_NAME: &'static str;

    /// The names of the columns, separated by commas.
    const COLUMNS: &'static str;

    /// Reads the next rows, at most `limit`, and returns whether there may be more. May return no
    /// rows although there are more. Not called again after the last rows.
    fn read(
        &mut self,
        limit: usize,
    ) -> impl Future<Output = Result<(Vec<Self::Row>, bool), ServiceError>> + Send;

    /// Writes the columns of a row.
    fn write(row: &Self::Row, line: &mut Line<'_>);
}

/// The part of a file that is still to be written.
pub(super) struct File<L> {
    list: L,
    rows_max: usize,
    rows_left: usize,
    /// Counts the file as one of its account's open exports.
    _open: OpenExport,
}

/// A page of a file, and the rest of the file if there is more.
type Page<L> = (Bytes, Option<File<L>>);

/// A page that is being read.
type PageFuture<L> = Pin<Box<dyn Future<Output = Result<Page<L>, CutOff>> + Send>>;

/// A file that is being sent.
struct Rest<L> {
    /// `None` after the last page.
    next: Option<PageFuture<L>>,
}

impl<L: List> File<L> {
    /// Creates a file of at most `rows_max` rows.
    pub(super) fn new(list: L, rows_max: usize, open: OpenExport) -> Self {
        Self { list, rows_max, rows_left: rows_max, _open: open }
    }

    /// Writes the next page, which may be empty. Returns whether there may be more.
    pub(super) async fn write_page(&mut self, out: &mut Vec<u8>) -> Result<bool, ServiceError> {
        // One row beyond the last tells whether the file is truncated.
        let (rows, has_more) = self.list.read(ROWS_PER_PAGE.min(self.rows_left + 1)).await?;
        for row in rows.iter().take(self.rows_left) {
            let mut line = Line::new(out);
            L::write(row, &mut line);
            line.end();
        }
        let Some(rows_left) = self.rows_left.checked_sub(rows.len()) else {
            let rows_max = self.rows_max;
            let note = format!(
                "# truncated after {rows_max} rows; export the rest with an earlier `to`\r\n"
            );
            out.extend_from_slice(note.as_bytes());
            return Ok(false);
        };
        self.rows_left = rows_left;
        Ok(has_more)
    }

    /// Returns a stream of `first` and then the rest of the file.
    pub(super) fn into_source(self, first: Vec<u8>) -> Box<dyn Source> {
        let first = future::ready(Ok((first.into(), Some(self))));
        Box::new(Rest { next: Some(Box::pin(first)) })
    }

    /// Reads the next page with rows; returns an empty page if there are no more.
    async fn next_page(mut self) -> Result<Page<L>, CutOff> {
        tokio::time::sleep(PAGE_PAUSE).await;
        let mut out = Vec::new();
        let mut retries_left = BUSY_RETRIES_MAX;
        loop {
            match self.write_page(&mut out).await {
                Ok(false) => return Ok((out.into(), None)),
                Ok(true) if !out.is_empty() => return Ok((out.into(), Some(self))),
                // Yields explicitly: a task that stays ready does not let other connections run.
                Ok(true) => tokio::task::yield_now().await,
                Err(ServiceError::Refused(Refusal::Busy)) if retries_left > 0 => {
                    retries_left -= 1;
                    tokio::time::sleep(BUSY_PAUSE).await;
                }
                Err(_) => return Err(CutOff),
            }
        }
    }
}

impl<L: List> Source for Rest<L> {
    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, CutOff>>> {
        let Some(next) = &mut self.next else {
            return Poll::Ready(None);
        };
        let page = ready!(next.as_mut().poll(context));
        // The future is done and must not be polled again, even if the page failed.
        self.next = None;
        Poll::Ready(match page {
            Ok((bytes, rest)) => {
                self.next = rest.map(|file| Box::pin(file.next_page()) as _);
                (!bytes.is_empty()).then_some(Ok(bytes))
            }
            Err(cut_off) => Some(Err(cut_off)),
        })
    }

    fn is_endless(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::future::poll_fn;
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;
    use crate::ws::counts::ExportCounts;
    use paperbourse_core::ids::AccountId;
    use paperbourse_exchange::service::Denied;

    /// A list of numbers from 1. Before each page come these refusals and empty pages.
    struct Numbers {
        count: u64,
        read_count: u64,
        before_each: VecDeque<Option<ServiceError>>,
        waiting: VecDeque<Option<ServiceError>>,
    }

    impl Numbers {
        fn new(count: usize, before_each: &[Option<ServiceError>]) -> Self {
            let before_each: VecDeque<_> = before_each.iter().cloned().collect();
            Self { count: count as u64, read_count: 0, waiting: before_each.clone(), before_each }
        }
    }

    impl List for Numbers {
        type Row = u64;
        const FILE_NAME: &'static str = "numbers.csv";
        const COLUMNS: &'static str = "number";

        async fn read(&mut self, limit: usize) -> Result<(Vec<u64>, bool), ServiceError> {
            match self.waiting.pop_front() {
                Some(Some(error)) => return Err(error),
                Some(None) => return Ok((Vec::new(), self.read_count < self.count)),
                None => self.waiting = self.before_each.clone(),
            }
            let first = self.read_count + 1;
            self.read_count = self.count.min(self.read_count + limit as u64);
            Ok(((first..=self.read_count).collect(), self.read_count < self.count))
        }

        fn write(row: &u64, line: &mut Line<'_>) {
            line.integer(*row);
        }
    }

    /// Returns the lines of a file, the maximum number of lines in a piece, and whether it was cut
    /// off.
    async fn sent(list: Numbers, rows_max: usize) -> (Vec<String>, usize, bool) {
        let counts = Arc::new(ExportCounts::default());
        let account = AccountId::from_raw(64).unwrap();
        let file = File::new(list, rows_max, counts.try_open(account, 1).unwrap());
        let mut source = file.into_source(b"number\r\n".to_vec());
        assert!(!source.is_endless());
        let (mut lines, mut most, mut is_cut_off) = (Vec::new(), 0, false);
        while let Some(piece) = poll_fn(|context| source.poll_bytes(context)).await {
            let Ok(bytes) = piece else {
                is_cut_off = true;
                continue;
            };
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            assert!(text.ends_with("\r\n"), "{text}");
            let before = lines.len();
            lines.extend(text.lines().map(str::to_owned));
            most = most.max(lines.len() - before);
        }
        drop(source);
        assert_eq!(counts.total(), 0);
        (lines, most, is_cut_off)
    }

    fn numbers(count: usize) -> Vec<String> {
        std::iter::once("number".into()).chain((1..=count).map(|it| it.to_string())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_has_every_row_in_pages() {
        for count in [0, 1, ROWS_PER_PAGE - 1, ROWS_PER_PAGE, ROWS_PER_PAGE + 1, 5_000] {
            for before_each in [&[][..], &[None, None]] {
                let (lines, most, is_cut_off) = sent(Numbers::new(count, before_each), 5_000).await;
                assert_eq!((lines, is_cut_off), (numbers(count), false), "{count}");
                assert!(most <= ROWS_PER_PAGE, "{most}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_leaves_its_worker_to_others_between_pages() {
        let began = Instant::now();
        sent(Numbers::new(50 * ROWS_PER_PAGE, &[None]), 10_000).await;
        assert_eq!(began.elapsed(), 50 * PAGE_PAUSE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_with_too_many_rows_says_so_at_its_end() {
        for rows_max in [1, ROWS_PER_PAGE - 1, ROWS_PER_PAGE, ROWS_PER_PAGE + 1, 999] {
            let (lines, _, _) = sent(Numbers::new(rows_max, &[]), rows_max).await;
            assert_eq!(lines, numbers(rows_max), "it is complete");
            for beyond in [1, 2, 1_000] {
                let (lines, ..) = sent(Numbers::new(rows_max + beyond, &[None]), rows_max).await;
                let mut expected = numbers(rows_max);
                let note = "rows; export the rest with an earlier `to`";
                expected.push(format!("# truncated after {rows_max} {note}"));
                assert_eq!(lines, expected);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_waits_for_a_busy_shard_and_is_cut_off_by_what_cannot_be_read() {
        let busy = || Some(ServiceError::from(Refusal::Busy));
        let list = || Numbers::new(2 * ROWS_PER_PAGE, &[None, busy(), busy()]);
        assert_eq!(sent(list(), 5_000).await.0, numbers(2 * ROWS_PER_PAGE));
        let always: Vec<_> = (0..=BUSY_RETRIES_MAX).map(|_| busy()).collect();
        let revoked = [Some(Denied::MissingCredential.into())];
        for refusals in [&always[..], &revoked] {
            let mut list = Numbers::new(3 * ROWS_PER_PAGE, refusals);
            list.waiting.clear();
            let (lines, _, is_cut_off) = sent(list, 5_000).await;
            assert_eq!((lines, is_cut_off), (numbers(ROWS_PER_PAGE), true));
        }
    }
}
