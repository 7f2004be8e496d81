//! Names the user on the other side of the socket.

use std::fs;

use crate::engine::admin::standing::{Operator, USER_BYTES_MAX};

/// The user list of most machines. It lacks the users of a directory service, so their names are
/// not found.
const USERS: &str = "/etc/passwd";

/// Returns the operator with this uid, and with the user's name if the list has one.
pub(super) fn operator(uid: u32) -> Operator {
    // Errors are ignored: the name is a courtesy, while the uid comes from the kernel.
    let users = fs::read(USERS).unwrap_or_default();
    Operator { uid, user: name_in(&String::from_utf8_lossy(&users), uid) }
}

fn name_in(users: &str, uid: u32) -> Option<Box<str>> {
    let names = users.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let number = fields.nth(1)?.parse::<u32>().ok()?;
        (number == uid && !name.is_empty() && name.len() <= USER_BYTES_MAX).then_some(name)
    });
    names.map(Into::into).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_number() {
        let long = "n".repeat(USER_BYTES_MAX + 1);
        let users = format!(
            "root:x:0:0:root:/root:/bin/sh\n# a comment\n\ndeploy:x:1000:1000::/home:\n\
             again:x:1000:1000::/:\n{long}:x:7:7::/:\nbroken:x:-1:0\n"
        );
        for (uid, name) in [(0, Some("root")), (1000, Some("deploy")), (7, None), (1, None)] {
            assert_eq!(name_in(&users, uid).as_deref(), name, "{uid}");
        }
    }
}
