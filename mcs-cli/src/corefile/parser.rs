//! Parses the words of a Corefile into server blocks and directives, with the place of each in the text.

use std::ops::Range;

use super::{
    CorefileError,
    tokens::{Token, Tokens, line_of},
};

/// What stands at the top of a Corefile: a server block, or a snippet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    /// The words of its header. Those of a snippet are `(NAME)`.
    pub(super) keys: Vec<String>,
    /// From the first key to the closing brace.
    pub(super) span: Range<usize>,
    /// What is between the braces.
    pub(super) inside: Range<usize>,
    pub(super) directives: Vec<Directive>,
}

/// A line of a block, with what it has in braces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Directive {
    /// Its name and arguments.
    pub(super) words: Vec<String>,
    /// From its name to its last word or brace.
    pub(super) span: Range<usize>,
    pub(super) body: Option<Body>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Body {
    /// What is between the braces.
    pub(super) inside: Range<usize>,
    pub(super) directives: Vec<Directive>,
}

impl Directive {
    pub(super) fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    pub(super) fn arguments(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }

    /// The directives in its braces.
    pub(super) fn inner(&self) -> &[Self] {
        self.body.as_ref().map_or(&[], |body| &body.directives)
    }
}

/// What a text has: blocks, and imports beside them.
pub(super) struct Parts {
    pub(super) blocks: Vec<Block>,
    pub(super) imports: Vec<Directive>,
    pub(super) comments: Vec<Range<usize>>,
}

pub(super) fn parse(text: &str) -> Result<Parts, CorefileError> {
    let Tokens { words, comments } = Tokens::of(text)?;
    let mut parser = Parser { text, words: &words, at: 0 };
    let (mut blocks, mut imports) = (Vec::new(), Vec::new());
    while let Some(token) = parser.peek() {
        if token.text == "import" {
            parser.at += 1;
            imports.push(parser.directive(token, Depth::Top)?);
        } else {
            blocks.push(parser.block(token)?);
        }
    }
    Ok(Parts { blocks, imports, comments })
}

/// Where a directive is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// Beside server blocks, or in one.
    Top,
    /// In the braces of another one.
    Inner,
}

struct Parser<'a> {
    text: &'a str,
    words: &'a [Token],
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a Token> {
        self.words.get(self.at)
    }

    fn next(&mut self) -> Option<&'a Token> {
        let token = self.peek();
        self.at += 1;
        token
    }

    /// The error about the braces at a place.
    fn braces(&self, at: usize) -> CorefileError {
        CorefileError::Braces(line_of(self.text, at))
    }

    fn block(&mut self, first: &Token) -> Result<Block, CorefileError> {
        let start = first.span.start;
        let mut keys: Vec<String> = Vec::new();
        let mut expects_another = false;
        let open = loop {
            let token = self.next().ok_or_else(|| self.braces(start))?;
            let is_misplaced = token.starts_line && !keys.is_empty() && !expects_another;
            match token.text.as_str() {
                "{" if expects_another || keys.is_empty() => return Err(self.braces(start)),
                "{" => break token.span.end,
                "}" => return Err(self.braces(token.span.start)),
                // CoreDNS takes one block without braces too, to the end of the file.
                _ if is_misplaced => return Err(self.braces(start)),
                key => {
                    expects_another = key.ends_with(',');
                    keys.push(key.strip_suffix(',').unwrap_or(key).to_owned());
                }
            }
        };
        let (directives, close) = self.directives(start, Depth::Top)?;
        Ok(Block { keys, span: start..close + 1, inside: open..close, directives })
    }

    /// The directives up to a closing brace, and the place of that.
    fn directives(
        &mut self,
        start: usize,
        depth: Depth,
    ) -> Result<(Vec<Directive>, usize), CorefileError> {
        let mut all = Vec::new();
        loop {
            let token = self.next().ok_or_else(|| self.braces(start))?;
            match token.text.as_str() {
                "}" => return Ok((all, token.span.start)),
                "{" => return Err(self.braces(token.span.start)),
                _ => all.push(self.directive(token, depth)?),
            }
        }
    }

    fn directive(&mut self, first: &Token, depth: Depth) -> Result<Directive, CorefileError> {
        let mut words = vec![first.text.clone()];
        let mut span = first.span.clone();
        let mut body = None;
        while let Some(token) = self.peek() {
            match token.text.as_str() {
                // An opening brace may stand on the next line.
                "{" if body.is_none() => {
                    self.at += 1;
                    let (directives, close) = self.directives(token.span.start, Depth::Inner)?;
                    body = Some(Body { inside: token.span.end..close, directives });
                    span.end = close + 1;
                }
                "{" => return Err(self.braces(token.span.start)),
                _ if token.starts_line => break,
                "}" if depth == Depth::Inner => break,
                "}" => return Err(self.braces(token.span.start)),
                word => {
                    self.at += 1;
                    words.push(word.to_owned());
                    span.end = token.span.end;
                }
            }
        }
        Ok(Directive { words, span, body })
    }
}
