//! Writing and deleting comments on orders.

use smallvec::smallvec;

use crate::engine::command::{DeleteComment, RemoveComment, WriteComment};
use crate::engine::comment::{COMMENTS_PER_AUTHOR_MAX, COMMENTS_PER_ORDER_MAX, Comment, Written};
use crate::engine::contradiction::{Flaw, NOT_KEPT, NOT_NEXT};
use crate::engine::decide::{Command, Given, IDS_EXHAUSTED, Verdict};
use crate::engine::event::Event;
use crate::engine::rejection::Rejection;
use crate::engine::state::State;
use crate::engine::state::heap::text_bytes;
use crate::engine::state::view::Observed;
use crate::ids::{AccountId, CommentId, Lsn};

impl Command for WriteComment {
    type Subject = CommentId;
    type Answer = Comment;

    fn decide(&self, state: &State, given: Given<'_, '_>) -> Result<Verdict<CommentId>, Rejection> {
        let Self { order, author, ref content, elsewhere } = *self;
        state.order(order).ok_or(Rejection::OrderNotFound)?;
        let comments = state.comments_of.get(&order).map_or(&[][..], |comments| &comments.ids);
        if comments.len() >= COMMENTS_PER_ORDER_MAX {
            return Err(Rejection::CommentLimitExceeded { comments_max: COMMENTS_PER_ORDER_MAX });
        }
        let is_own = |&id: &CommentId| state.comment(id).is_some_and(|own| own.author == author);
        if comments.iter().copied().filter(is_own).count() >= COMMENTS_PER_AUTHOR_MAX {
            return Err(Rejection::AuthorLimitExceeded { comments_max: COMMENTS_PER_AUTHOR_MAX });
        }
        let written = state.written_by(author).and(elsewhere);
        let comments_max = given.rules.author_comments_max.max(1);
        if let Some((_, oldest)) = written.oldest
            && written.count >= comments_max as usize
        {
            return Err(Rejection::WrittenLimitExceeded { comments_max, oldest });
        }
        let comment = CommentId::new(state.shard, state.comments_ever + 1).ok_or(IDS_EXHAUSTED)?;
        let content = content.clone();
        let added = Event::CommentAdded { comment, order, author, content, at: given.now };
        Ok(Verdict::Happens(smallvec![added], comment))
    }

    fn answer(state: &State, comment: CommentId, _: bool) -> Comment {
        state.comment(comment).expect("just added").clone()
    }

    fn depends_on(&self, state: &State) -> Lsn {
        state.comments_lsn(self.order)
    }

    fn refusal_depends_on(&self, state: &State, rejection: &Rejection) -> Lsn {
        let lsn = self.depends_on(state);
        match rejection {
            Rejection::WrittenLimitExceeded { .. } => lsn.max(state.written_lsn(self.author)),
            _ => lsn,
        }
    }
}

impl Command for DeleteComment {
    type Subject = ();
    type Answer = ();

    fn decide(&self, state: &State, _: Given<'_, '_>) -> Result<Verdict<()>, Rejection> {
        let comment = state.comment(self.comment).ok_or(Rejection::CommentNotFound)?;
        if comment.author != self.author {
            return Err(Rejection::CommentNotOwn);
        }
        Ok(Verdict::Happens(smallvec![Event::CommentDeleted { comment: comment.id }], ()))
    }

    fn answer(_: &State, (): (), _: bool) {}

    fn depends_on(&self, state: &State) -> Lsn {
        state.comment_lsn(self.comment)
    }
}

impl Command for RemoveComment {
    type Subject = Comment;
    type Answer = Comment;

    fn decide(&self, state: &State, _: Given<'_, '_>) -> Result<Verdict<Comment>, Rejection> {
        let comment = state.comment(self.0).ok_or(Rejection::CommentNotFound)?;
        Ok(Verdict::Happens(smallvec![Event::CommentDeleted { comment: self.0 }], comment.clone()))
    }

    fn answer(_: &State, comment: Comment, _: bool) -> Comment {
        comment
    }

    fn depends_on(&self, state: &State) -> Lsn {
        state.comment_lsn(self.0)
    }
}

impl State {
    /// Summarises an account's comments on this shard's orders. Takes time linear in their number,
    /// which `Rules::author_comments_max` bounds.
    pub(in crate::engine) fn written_by(&self, author: AccountId) -> Written {
        let mut own = self.comments_by(author);
        let oldest = own.next().map(|comment| (comment.at, comment.id));
        Written { count: usize::from(oldest.is_some()) + own.count(), oldest }
    }

    /// Summarises an account's comments on this shard's orders.
    pub fn observe_written(&self, author: AccountId) -> Observed<Written> {
        Observed { value: self.written_by(author), lsn: self.written_lsn(author) }
    }

    /// Returns up to `limit` of an account's comments on this shard's orders, oldest first,
    /// starting with the first id above `after`.
    pub fn observe_comments_by(
        &self,
        author: AccountId,
        after: Option<CommentId>,
        limit: usize,
    ) -> Observed<Vec<Comment>> {
        let is_later = |comment: &&Comment| after.is_none_or(|after| comment.id > after);
        let own = self.comments_by(author).filter(is_later).take(limit);
        // A deletion may have shortened the list, so cover the newest removal too.
        let lsn = self.written_lsn(author).max(self.lsn_at(self.last_removal));
        Observed { value: own.cloned().collect(), lsn }
    }

    /// Returns the LSN that a comment, or its absence, depends on.
    fn comment_lsn(&self, id: CommentId) -> Lsn {
        match self.comment(id) {
            Some(comment) => self.comments_lsn(comment.order),
            None => self.absence_lsn(id.shard(), id.counter(), self.comments_ever),
        }
    }

    fn written_lsn(&self, author: AccountId) -> Lsn {
        let newest = self.comments_by(author).last();
        newest.map_or(Lsn::START, |newest| self.comments_lsn(newest.order))
    }

    /// Iterates over an account's comments on this shard's orders, oldest first.
    fn comments_by(&self, author: AccountId) -> impl Iterator<Item = &Comment> {
        let first = CommentId::new(self.shard, 1).expect("the first id is one");
        let own = self.comments_by.range((author, first)..);
        let own = own.take_while(move |(other, _)| *other == author);
        own.map(|(_, id)| &self.comments[id])
    }

    pub(in crate::engine) fn add_comment(
        &mut self,
        comment: Comment,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let flaw = |flaw| Err(Flaw::comment(comment.id, flaw));
        let counter = comment.id.counter();
        if comment.id.shard() != self.shard || Some(counter) != self.comments_ever.checked_add(1) {
            return flaw(NOT_NEXT);
        }
        if self.order(comment.order).is_none() {
            return flaw("is on no order");
        }
        let comments = self.comments_of.get(&comment.order);
        if comments.is_some_and(|comments| comments.ids.len() >= COMMENTS_PER_ORDER_MAX) {
            return flaw("is one more than its order may have");
        }
        self.comments_ever = counter;
        self.insert_comment(comment, position_in_log);
        Ok(())
    }

    /// Appends a comment to its order, which must be stored.
    pub(in crate::engine) fn insert_comment(&mut self, comment: Comment, position_in_log: u64) {
        let comments = self.comments_of.entry(comment.order).or_default();
        comments.ids.push(comment.id);
        comments.position_in_log = position_in_log;
        self.hash += comment.term();
        self.comment_text_bytes += text_bytes(comment.content.len());
        self.comments_by.insert((comment.author, comment.id));
        self.comments.insert(comment.id, comment);
    }

    /// Removes a comment everywhere except from its order's list.
    pub(in crate::engine) fn remove_comment(&mut self, id: CommentId) -> Option<Comment> {
        let comment = self.comments.remove(&id)?;
        let was_listed = self.comments_by.remove(&(comment.author, id));
        assert!(was_listed, "a comment is listed under its author");
        self.hash -= comment.term();
        let bytes = text_bytes(comment.content.len());
        assert!(bytes <= self.comment_text_bytes, "the text of every comment is counted");
        self.comment_text_bytes -= bytes;
        Some(comment)
    }

    pub(in crate::engine) fn delete_comment(
        &mut self,
        id: CommentId,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let comment = self.remove_comment(id).ok_or(Flaw::comment(id, NOT_KEPT))?;
        let comments = self
            .comments_of
            .get_mut(&comment.order)
            .expect("every comment is listed under its order");
        comments.ids.retain(|&other| other != id);
        comments.position_in_log = position_in_log;
        if comments.ids.is_empty() {
            self.comments_of.remove(&comment.order);
        }
        self.last_removal = position_in_log;
        Ok(())
    }
}
