//! The flags of etcd. Every control plane has its own.

use std::path::Path;

/// Where it is, in the network namespace of the control plane.
pub const URL: &str = "http://127.0.0.1:2379";

/// Its flags, with what it stores in that directory. It logs from that level on.
pub fn flags(data: &Path, log_level: &str) -> [String; 6] {
    [
        format!("--data-dir={}", data.display()),
        format!("--listen-client-urls={URL}"),
        format!("--advertise-client-urls={URL}"),
        format!("--log-level={log_level}"),
        // As kubeadm's: without it, bookmarks of what does not change grow old.
        "--watch-progress-notify-interval=5s".to_owned(),
        // It does not outlive the machine.
        "--unsafe-no-fsync".to_owned(),
    ]
}
