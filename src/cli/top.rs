//! `paperbourse top`: shows what a server is doing, from its metrics.

mod scrape;
mod view;

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use hyper::Uri;
use rustix::termios::tcgetwinsize;

use crate::server::ending_signal;
use crate::telemetry::OneLine;
use crate::venue::client::Client;
use crate::venue::tls::{self, Roots};
use scrape::Page;
use view::Size;

/// Timeout for one fetch of the metrics.
const PATIENCE: Duration = Duration::from_secs(5);

/// Maximum size of a metrics page, in bytes: ten times the size of a real page.
const PAGE_BYTES_MAX: usize = 4 << 20;

/// The size assumed for a terminal that does not report one, and for output to a file or a pipe.
const DEFAULT_SIZE: Size = Size { columns: 100, rows: 40 };

/// Switches to the alternate screen and hides the cursor; [`LEAVE`] restores the previous contents.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

#[derive(Args, Debug)]
pub(super) struct TopArgs {
    /// Address of the metrics page, which `serve --admin-listen` offers
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9090/metrics")]
    url: Uri,

    /// Seconds between samples
    #[arg(long, value_name = "SECONDS", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=3600))]
    interval: u32,
}

/// The address of the metrics and the client that fetches them.
struct Source {
    client: Client,
    url: Uri,
}

/// Redraws until a signal arrives. If stdout is not a terminal, prints one sample and returns.
pub(super) fn run(arguments: TopArgs) -> anyhow::Result<()> {
    let source = Source::new(arguments.url)?;
    let interval = Duration::from_secs(arguments.interval.into());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    runtime.block_on(async {
        let first = source.read().await?;
        if !io::stdout().is_terminal() {
            tokio::time::sleep(interval).await;
            let second = source.read().await?;
            let text = view::text(&first, &second, &source.url.to_string(), DEFAULT_SIZE);
            return print(&text);
        }
        let ending = ending_signal()?;
        let _screen = Screen::enter()?;
        tokio::select! {
            result = redraw(&source, first, interval) => result,
            _ = ending => Ok(()),
        }
    })
}

async fn redraw(source: &Source, mut before: Page, interval: Duration) -> anyhow::Result<()> {
    let mut text = String::from("sampling ...");
    loop {
        print(&frame(&text))?;
        tokio::time::sleep(interval).await;
        text = match source.read().await {
            Ok(after) => {
                let text = view::text(&before, &after, &source.url.to_string(), size());
                before = after;
                text
            }
            // The server may be restarting.
            Err(error) => format!("{}\n", OneLine(format_args!("{error:#}"))),
        };
    }
}

impl Source {
    fn new(url: Uri) -> anyhow::Result<Self> {
        let roots = match url.scheme_str() {
            Some("http") => Roots::Nobody,
            Some("https") => Roots::System,
            _ => bail!("--url {url} does not begin with http:// or https://"),
        };
        let url = match url.path() {
            "" | "/" => format!("{}/metrics", url.to_string().trim_end_matches('/')).parse()?,
            _ => url,
        };
        Ok(Self { client: Client::new(tls::client_config(roots)?, PATIENCE, 1), url })
    }

    async fn read(&self) -> anyhow::Result<Page> {
        let url = &self.url;
        let page = self.client.get(url.clone(), PAGE_BYTES_MAX).await;
        let page = page.with_context(|| {
            format!("failed to read {url} (--url must have the address of `serve --admin-listen`)")
        })?;
        let page = Page::parse(&String::from_utf8_lossy(&page), Instant::now());
        if !page.is_of_paperbourse() {
            bail!(
                "{url} does not have the metrics of paperbourse: --url must have the address of \
                 `serve --admin-listen`"
            );
        }
        Ok(page)
    }
}

/// The alternate screen of a terminal. Dropping this returns to the normal screen.
struct Screen;

impl Screen {
    fn enter() -> anyhow::Result<Self> {
        print(ENTER)?;
        Ok(Self)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // There is nowhere left to report an error.
        let _ = print(LEAVE);
    }
}

/// Draws over the previous text without clearing it first, which would flicker.
fn frame(text: &str) -> String {
    format!("\x1b[H{}\x1b[K\x1b[J", text.trim_end().replace('\n', "\x1b[K\n"))
}

fn size() -> Size {
    tcgetwinsize(io::stdout()).ok().map_or(DEFAULT_SIZE, |size| {
        // A terminal without a size reports 0.
        let or_default = |count: u16, default| if count == 0 { default } else { count.into() };
        Size {
            columns: or_default(size.ws_col, DEFAULT_SIZE.columns),
            rows: or_default(size.ws_row, DEFAULT_SIZE.rows),
        }
    })
}

/// Writes and flushes the text. A closed stdout is not an error.
fn print(text: &str) -> anyhow::Result<()> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed.context("failed to print the metrics"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_path_gets_the_path_of_the_metrics() {
        for (url, expected) in [
            ("http://127.0.0.1:9090", "http://127.0.0.1:9090/metrics"),
            ("http://[::1]:9/", "http://[::1]:9/metrics"),
            ("http://proxy/bourse/metrics", "http://proxy/bourse/metrics"),
        ] {
            let source = Source::new(url.parse().unwrap()).unwrap();
            assert_eq!(source.url.to_string(), expected, "{url}");
        }
        for url in ["ftp://127.0.0.1/metrics", "/metrics", "127.0.0.1:9090"] {
            assert!(Source::new(url.parse().unwrap()).is_err(), "{url}");
        }
    }

    #[test]
    fn a_frame_ends_each_line_and_the_screen() {
        assert_eq!(frame("a\nb\n"), "\x1b[Ha\x1b[K\nb\x1b[K\x1b[J");
    }
}
