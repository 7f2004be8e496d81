//! The file of the socket.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use super::socket_path;

/// A bound socket, whose file is removed when this is dropped.
#[derive(Debug)]
pub struct OperatorSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl OperatorSocket {
    /// Binds the socket of this data folder, which the caller has locked: what a server that
    /// crashed has left there is replaced.
    ///
    /// Only the file's mode keeps others out, and a new socket has that of the umask. So it gets
    /// its mode in a folder that nobody else can enter, and its name afterwards.
    pub fn bind(data: &Path) -> io::Result<Self> {
        Self::bind_at(data, &socket_path(data))
    }

    /// Binds another socket in the folder.
    pub fn bind_at(data: &Path, path: &Path) -> io::Result<Self> {
        // With a name in it, shorter than that of the socket, which so decides what is too long.
        let private = data.join("operator");
        remove_private(&private)?;
        DirBuilder::new().mode(0o700).create(&private)?;
        let bound = bind_in(&private, path);
        remove_private(&private)?;
        let listener = bound?;
        Ok(Self { listener, path: path.to_path_buf() })
    }

    /// The path of its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What accepts connections.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for OperatorSocket {
    fn drop(&mut self) {
        // Somebody may have removed it before.
        let _ = fs::remove_file(&self.path);
    }
}

fn bind_in(private: &Path, path: &Path) -> io::Result<UnixListener> {
    let unnamed = private.join("s");
    // The name must be one that clients can connect to.
    std::os::unix::net::SocketAddr::from_pathname(path)?;
    let listener = UnixListener::bind(&unnamed)?;
    fs::set_permissions(&unnamed, Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    fs::rename(&unnamed, path)?;
    Ok(listener)
}

fn remove_private(private: &Path) -> io::Result<()> {
    match fs::remove_dir_all(private) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn only_the_owner_may_open_the_socket_and_it_leaves_nothing_behind() {
        let data = tempfile::tempdir().unwrap();
        let path = socket_path(data.path());
        // As a server leaves it that was killed.
        drop(UnixListener::bind(&path).unwrap());
        fs::create_dir(data.path().join("operator")).unwrap();
        UnixStream::connect(&path).unwrap_err();

        let socket = OperatorSocket::bind(data.path()).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        UnixStream::connect(&path).unwrap();
        assert_eq!(fs::read_dir(data.path()).unwrap().count(), 1);
        drop(socket);
        assert_eq!(fs::read_dir(data.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_path_that_is_too_long_is_refused_and_leaves_nothing_behind() {
        let data = tempfile::tempdir().unwrap();
        let long = data.path().join("d".repeat(120));
        fs::create_dir(&long).unwrap();
        let refused = OperatorSocket::bind(&long).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(fs::read_dir(&long).unwrap().count(), 0);
    }
}
