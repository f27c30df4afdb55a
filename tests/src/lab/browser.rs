//! A real browser without a window: Debian's chromium.

use std::env;

use tempfile::TempDir;

use crate::{prelude::*, suite};

const PROGRAM: &str = "chromium";
/// The variable with the directory where pictures are kept, such as deploy.
const PICTURES: &str = "MCS_PICTURES";
/// The largest picture in bytes: documents show it.
const LARGEST: u64 = 150_000;

/// The directory that `MCS_PICTURES` names, or else this one.
pub fn directory_of_pictures(directory: &Path) -> PathBuf {
    env::var_os(PICTURES).map_or_else(|| directory.to_owned(), PathBuf::from)
}

/// A browser, with a profile of its own.
#[derive(Debug)]
pub struct Browser {
    profile: TempDir,
}

impl Browser {
    /// Fails as a skip where there is none.
    pub fn find() -> Result<Self> {
        let paths = env::var_os("PATH").unwrap_or_default();
        let is_there = env::split_paths(&paths).any(|path| path.join(PROGRAM).exists());
        if !is_there {
            return Err(suite::skip("there is no chromium: run `cargo xtask setup browser`"));
        }
        Ok(Self { profile: tempfile::tempdir()? })
    }

    fn run(&self, netns: Option<&Namespace>, arguments: &[&str]) -> Result<String> {
        let profile = format!("--user-data-dir={}", self.profile.path().display());
        let flags =
            ["60", PROGRAM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"];
        let words = [&flags[..], &[&*profile], arguments].concat();
        match netns {
            Some(netns) => netns.output("timeout", &words),
            None => process::run(Command::new("timeout").args(words), ""),
        }
    }

    /// The document at a URL, as the browser has it once it is loaded.
    pub fn document(&self, netns: &Namespace, url: &str) -> Result<String> {
        self.run(Some(netns), &["--dump-dom", url])
    }

    /// How wide a page becomes in a window of that width, in pixels.
    pub fn width(&self, netns: &Namespace, page: &str, style: &str, window: u16) -> Result<u16> {
        let page = page.replace(
            "<link rel=\"stylesheet\" href=\"/page.css\">",
            &format!("<style>{style}</style>"),
        );
        let page = page.replace('&', "&amp;").replace('"', "&quot;");
        let frame = format!(
            "<!doctype html><iframe id=\"page\" style=\"width:{window}px;height:800px;border:0\" srcdoc=\"{page}\"></iframe>\
             <script>onload = () => {{ document.title = 'width ' + document.getElementById('page').contentDocument.documentElement.scrollWidth }}</script>"
        );
        let file = self.profile.path().join("frame.html");
        fs::write(&file, frame)?;
        let document = self.document(netns, &format!("file://{}", file.display()))?;
        let width = document.split("<title>width ").nth(1).and_then(|rest| rest.split('<').next());
        Ok(width.context("no width was measured")?.parse()?)
    }

    /// Takes a picture of a page into this file of the directory that `MCS_PICTURES` names, or else of `directory`.
    pub fn picture(
        &self,
        url: &str,
        (width, height): (u16, u16),
        directory: &Path,
        name: &str,
    ) -> Result {
        let kept = env::var_os(PICTURES);
        let file = std::path::absolute(directory_of_pictures(directory).join(name))?;
        let size = format!("--window-size={width},{height}");
        let target = format!("--screenshot={}", file.display());
        // Without it the picture can lack the end of the page.
        let complete = "--run-all-compositor-stages-before-draw";
        self.run(None, &[&size, complete, "--virtual-time-budget=3000", &target, url])?;
        let length = fs::metadata(&file).context("the browser took no picture")?.len();
        let is_fine = length > 5_000 && (kept.is_none() || length < LARGEST);
        ensure!(is_fine, "{} has {length} bytes", file.display());
        suite::tell(format!("a picture of {length} bytes in {}", file.display()));
        Ok(())
    }
}
