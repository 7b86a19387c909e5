//! The parser: recursive descent, one token ahead. Every error says where, what was expected, and which known name is
//! near. A short text makes a small graph: sizes are numbers, never allocations.

use super::lex::{Lexer, Token, brief};
use super::print;
use crate::graph::is_well_formed;
use crate::op::{RegionType, infer};
use crate::ops::CustomOps;
use crate::{
    Attr, AttrReader, DType, Def, Graph, GraphError, Init, Loc, Mistake, Node, NodeId, Op, Port, Region,
    Role, Shape, StatePort, Type, Update, ValueId, nearest,
};
use std::collections::HashMap;

pub(super) const KEYWORDS: [&str; 6] = ["dim", "input", "state", "output", "update", "guard"];

pub(super) type Parsed<T> = Result<T, GraphError>;

impl Graph {
    /// Reads the text form; the error gives line and column, what was expected, and the remedy.
    pub fn parse(text: &str) -> Result<Graph, GraphError> {
        Graph::parse_with(text, &CustomOps::new())
    }

    /// The same for a text that names ops of the user's own: those in `ops`.
    pub fn parse_with(text: &str, ops: &CustomOps) -> Result<Graph, GraphError> {
        ops.check()?;
        let mut p = Parser {
            ops,
            lexer: Lexer::new(text),
            token: Token::End,
            at: 0,
            graph: Graph::default(),
            values: HashMap::new(),
            region: 0,
            regions: 0,
            line: (0, 1),
        };
        p.advance()?;
        p.graph()?;
        p.graph.verify()?;
        Ok(p.graph)
    }
}

pub(super) struct Parser<'t> {
    /// What a text may name besides the ops of the table.
    ops: &'t CustomOps,
    lexer: Lexer<'t>,
    /// The next token, and where it begins.
    pub(super) token: Token<'t>,
    pub(super) at: usize,
    pub(super) graph: Graph,
    /// Each name's value, and the region that it belongs to.
    values: HashMap<&'t str, (ValueId, usize)>,
    /// The region at hand, and how many there have been.
    region: usize,
    regions: usize,
    /// A byte offset, and the line that it is in: nodes count on from the one before.
    line: (usize, u32),
}

/// `; did you mean 'x'?`, when there is a near name.
pub(super) fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    // A longer name is no slip, and comparing it would take long.
    let short = |n: &&str| n.len() <= 64;
    let near = Some(name).filter(short).and_then(|n| nearest(n, known.into_iter().filter(short)));
    near.map(|n| format!("; did you mean '{n}'?")).unwrap_or_default()
}

fn types_text(types: &[Type]) -> String {
    types.iter().map(print::ty).collect::<Vec<_>>().join(", ")
}

impl<'t> Parser<'t> {
    pub(super) fn error<T>(&self, at: usize, message: impl Into<String>) -> Parsed<T> {
        Err(self.lexer.error(at, message))
    }

    pub(super) fn expected<T>(&self, what: &str) -> Parsed<T> {
        self.error(self.at, format!("expected {what}, found {}", self.token))
    }

    /// Takes the next token.
    pub(super) fn advance(&mut self) -> Parsed<Token<'t>> {
        let (token, at) = self.lexer.next()?;
        self.at = at;
        Ok(std::mem::replace(&mut self.token, token))
    }

    pub(super) fn is(&self, punct: &str) -> bool {
        matches!(self.token, Token::Punct(p) if p == punct)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.token, Token::Word(w) if w == word)
    }

    /// Takes the punctuation or keyword if it stands next.
    pub(super) fn eat(&mut self, what: &str) -> Parsed<bool> {
        let found = self.is(what) || self.is_word(what);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    pub(super) fn expect(&mut self, what: &str) -> Parsed<()> {
        if self.eat(what)? { Ok(()) } else { self.expected(&format!("'{what}'")) }
    }

    pub(super) fn word(&mut self, what: &str) -> Parsed<&'t str> {
        let Token::Word(w) = self.token else { return self.expected(what) };
        self.advance()?;
        Ok(w)
    }

    /// A name, in quotes or (where it is a plain word) without.
    pub(super) fn name(&mut self, what: &str) -> Parsed<String> {
        match self.advance_if(|t| matches!(t, Token::Word(_) | Token::Quoted(_)))? {
            Some(Token::Word(w)) => Ok(w.to_string()),
            Some(Token::Quoted(name)) => Ok(name),
            _ => self.expected(what),
        }
    }

    fn advance_if(&mut self, wanted: impl Fn(&Token<'t>) -> bool) -> Parsed<Option<Token<'t>>> {
        if wanted(&self.token) { self.advance().map(Some) } else { Ok(None) }
    }

    pub(super) fn size(&mut self, what: &str) -> Parsed<usize> {
        match self.token {
            Token::Number(n) if n.bytes().all(|b| b.is_ascii_digit()) => match n.parse() {
                Ok(n) => self.advance().map(|_| n),
                Err(_) => self.error(self.at, format!("{} is too large for a size", brief(n))),
            },
            _ => self.expected(what),
        }
    }

    /// Items separated by commas, up to `close`, which is taken.
    pub(super) fn list<T>(
        &mut self,
        close: &str,
        mut item: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        let mut items = vec![];
        while !self.eat(close)? {
            if !items.is_empty() && !self.eat(",")? {
                return self.expected(&format!("',' or '{close}'"));
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    // The graph and its interface.

    fn graph(&mut self) -> Parsed<()> {
        self.expect("graph")?;
        self.graph.name = self.name("the graph's name")?;
        self.expect("{")?;
        let mut body = vec![];
        while !self.eat("}")? {
            match self.token {
                Token::Word("dim") => self.dim_statement()?,
                Token::Word("input") => self.input()?,
                Token::Word("state") => self.state()?,
                Token::Word("output") => self.output()?,
                Token::Word("update") => self.update()?,
                Token::Word("guard") => self.guard()?,
                Token::Word(_) | Token::Value(_) => body.push(self.node(0)?),
                _ => {
                    return self.expected(
                        "a statement (dim, input, state, %value = …, output, update, guard) or '}'",
                    );
                }
            }
        }
        self.graph.body.nodes = body;
        match self.token {
            Token::End => Ok(()),
            _ => self.expected("the end of the text after the graph"),
        }
    }

    fn dim_statement(&mut self) -> Parsed<()> {
        self.advance()?;
        let at = self.at;
        let name = self.name("a dimension's name")?;
        if !is_well_formed(&name) {
            return self
                .error(at, "a dimension's name is empty or has a quote, backslash or control character");
        }
        self.expect("<=")?;
        let bound_at = self.at;
        let bound = self.size("the dimension's bound")?;
        if bound == 0 {
            return self.error(bound_at, "the bound is 0; give one of at least 1");
        }
        match self.graph.dims.insert(name.as_str().into(), bound) {
            None => Ok(()),
            Some(_) => self.error(at, format!("dimension '{name}' is declared twice")),
        }
    }

    /// The name of an input, state or output that has none of its kind before it.
    fn new_name(&mut self, kind: &str, taken: impl Fn(&Graph, &str) -> bool) -> Parsed<String> {
        self.advance()?;
        let at = self.at;
        let Token::Quoted(name) = self.token.clone() else {
            return self.expected(&format!("the {kind}'s name in double quotes"));
        };
        self.advance()?;
        if !is_well_formed(&name) {
            return self.error(
                at,
                format!("the {kind}'s name is empty or has a quote, backslash or control character"),
            );
        }
        if taken(&self.graph, &name) {
            return self.error(at, format!("{kind} '{name}' exists already; choose another name"));
        }
        Ok(name)
    }

    fn input(&mut self) -> Parsed<()> {
        let name = self.new_name("input", |g, n| g.inputs.iter().any(|p| &*p.name == n))?;
        let value = self.param()?;
        self.graph.body.params.push(value);
        self.graph.inputs.push(Port { name: name.into(), value });
        Ok(())
    }

    fn state(&mut self) -> Parsed<()> {
        let name = self.new_name("state", |g, n| g.state(n).is_some())?;
        let place = self.at;
        let value = self.param()?;
        let at = self.at;
        let role = self.word("the state's role, such as parameter")?;
        let Some(role) = Role::ALL.into_iter().find(|r| r.name() == role) else {
            let names = Role::ALL.map(Role::name);
            let near = hint(role, names);
            return self.error(
                at,
                format!("there is no role '{}'; roles are {}{near}", brief(role), names.join(", ")),
            );
        };
        if role != Role::Buffer && self.graph.ty(value).shape.sizes().is_none() {
            let fault =
                format!("state '{name}' has a dimension variable; give it fixed sizes, or the role buffer");
            return self.error(place, fault);
        }
        self.expect("init")?;
        self.expect("=")?;
        let init = self.init()?;
        self.graph.body.params.push(value);
        self.graph.states.push(StatePort { name: name.into(), value, role, init });
        Ok(())
    }

    fn init(&mut self) -> Parsed<Init> {
        let at = self.at;
        let kind = self.word("an initialiser")?;
        let kinds = ["constant", "uniform", "normal", "truncated_normal", "orthogonal", "seed"];
        if kind == "seed" {
            return Ok(Init::Seed);
        }
        if !kinds.contains(&kind) {
            let near = hint(kind, kinds);
            let all = "constant(value), uniform(low, high), normal(mean, std), \
                       truncated_normal(mean, std, low, high), orthogonal(gain) or seed";
            return self.error(at, format!("there is no initialiser '{}'; write {all}{near}", brief(kind)));
        }
        self.expect("(")?;
        let numbers = self.list(")", |p| p.real())?;
        match (kind, &numbers[..]) {
            ("constant", &[value]) => Ok(Init::Constant(value)),
            ("uniform", &[low, high]) => Ok(Init::Uniform { low, high }),
            ("normal", &[mean, std]) => Ok(Init::Normal { mean, std }),
            ("truncated_normal", &[mean, std, low, high]) => {
                Ok(Init::TruncatedNormal { mean, std, low, high })
            }
            ("orthogonal", &[gain]) => Ok(Init::Orthogonal { gain }),
            _ => self.error(
                at,
                "constant and orthogonal take one number, uniform and normal take two, truncated_normal four",
            ),
        }
    }

    fn output(&mut self) -> Parsed<()> {
        let name = self.new_name("output", |g, n| g.output(n).is_some())?;
        let value = self.value()?;
        self.graph.outputs.push(Port { name: name.into(), value });
        Ok(())
    }

    fn update(&mut self) -> Parsed<()> {
        self.advance()?;
        let at = self.at;
        let Token::Quoted(name) = self.token.clone() else {
            return self.expected("the state's name in double quotes");
        };
        self.advance()?;
        let value = self.value()?;
        let guarded = match self.token {
            Token::Word("guarded") => true,
            Token::Word("always") => false,
            _ => return self.expected("'guarded' or 'always'"),
        };
        self.advance()?;
        let g = &self.graph;
        let Some(state) = g.states.iter().position(|s| *s.name == *name) else {
            let near = hint(&name, g.states.iter().map(|s| &*s.name));
            return self.error(at, format!("there is no state '{}' above{near}", brief(&name)));
        };
        if g.updates.iter().any(|u| u.state == state) {
            return self.error(at, format!("state '{name}' is updated twice; combine the two updates"));
        }
        let (want, got) = (g.ty(g.states[state].value), g.ty(value));
        if want != got {
            let (want, got) = (print::ty(want), print::ty(got));
            return self.error(at, format!("state '{name}' is {want} but the new value is {got}"));
        }
        self.graph.updates.push(Update { state, value, guarded });
        Ok(())
    }

    fn guard(&mut self) -> Parsed<()> {
        self.advance()?;
        let at = self.at;
        let value = self.value()?;
        let ty = self.graph.ty(value);
        if *ty != Type::new(DType::Bool, Shape::scalar()) {
            return self.error(at, format!("the guard is {}; it must be bool[]", print::ty(ty)));
        }
        match self.graph.guard.replace(value) {
            None => Ok(()),
            Some(_) => self.error(at, "there is a guard already; combine the two with 'and'"),
        }
    }

    fn node(&mut self, depth: usize) -> Parsed<NodeId> {
        let mut names = vec![];
        while let Token::Value(name) = self.token {
            names.push((name, self.at));
            self.advance()?;
            if !self.eat(",")? {
                self.expect("=")?;
                break;
            }
        }
        let at = self.at;
        self.line = (at, self.line.1 + self.lexer.lines_between(self.line.0, at));
        let loc = Some(Loc::Text(self.line.1));
        let mnemonic = self.word("the op's name")?;
        let mut operands = vec![];
        let mut more = matches!(self.token, Token::Value(_));
        while more {
            operands.push(self.value()?);
            // Without a comma, a value that follows begins the next node.
            more = self.eat(",")?;
        }
        let attrs = if self.eat("{")? { self.list("}", |p| p.attr())? } else { vec![] };
        if let Some(i) = (1..attrs.len()).find(|&i| attrs[..i].iter().any(|a| a.0 == attrs[i].0)) {
            return self.error(at, format!("attribute '{}' of {mnemonic} is given twice", attrs[i].0));
        }
        let op = self.op(at, mnemonic, attrs)?;
        let types_at = self.at;
        let types = if self.eat(":")? { Some(self.types()?) } else { None };
        let mut regions = vec![];
        while self.eat("region")? {
            regions.push(self.region(depth + 1)?);
        }
        let rule = op.rule();
        if regions.len() != rule.region_count() {
            let (want, got) = (rule.region_count(), regions.len());
            return self.error(at, format!("{mnemonic} has {want} region(s), but the text gives {got}"));
        }
        let given: Vec<Type> = operands.iter().map(|v| self.graph.ty(*v).clone()).collect();
        let boundary: Vec<RegionType> = regions.iter().map(|r| self.graph.region_type(r)).collect();
        let call = || format!("{mnemonic}({})", types_text(&given));
        let inferred = match infer(&op, &given, &boundary) {
            Ok(types) => types,
            Err(mistake) => return self.error(at, format!("{}: {mistake}", call())),
        };
        if let Some(types) = types.filter(|t| *t != inferred) {
            let (says, gives) = (types_text(&types), types_text(&inferred));
            return self.error(types_at, format!("the text says ({says}) but {} gives ({gives})", call()));
        }
        if names.len() != inferred.len() {
            let (names, results) = (names.len(), inferred.len());
            return self
                .error(at, format!("{} gives {results} result(s), but {names} name(s) are given", call()));
        }
        let id = NodeId(self.graph.nodes.len() as u32);
        let mut results = vec![];
        for (i, (ty, (name, at))) in (0..).zip(inferred.into_iter().zip(names)) {
            results.push(self.define(name, at, ty, Def::Node(id, i))?);
        }
        self.graph.nodes.push(Node { op, operands, results, regions, loc });
        Ok(id)
    }

    fn op(&self, at: usize, mnemonic: &str, attrs: Vec<(String, Attr)>) -> Parsed<Op> {
        let known: Vec<&str> = Op::names().into_iter().chain(self.ops.names()).collect();
        if !known.contains(&mnemonic) {
            let near = match hint(mnemonic, known.into_iter().chain(KEYWORDS).chain(["yield"])) {
                none if none.is_empty() => {
                    "; an op of your own is read by Graph::parse_with, given that op".into()
                }
                near => near,
            };
            return self.error(at, format!("there is no op '{}'{near}", brief(mnemonic)));
        }
        let given: Vec<String> = attrs.iter().map(|a| a.0.clone()).collect();
        let mut reader = AttrReader::new(attrs);
        let own = self.ops.read(mnemonic, &mut reader);
        let parsed = own.unwrap_or_else(|| Op::parse(mnemonic, &mut reader));
        let parsed = parsed.and_then(|op| reader.done().map(|()| op));
        parsed.or_else(|Mistake { what, help }| {
            let given = if given.is_empty() { "none".into() } else { brief(&given.join(", ")) };
            self.error(at, format!("{mnemonic}: {what}; {help} (attributes given: {given})"))
        })
    }

    fn region(&mut self, depth: usize) -> Parsed<Region> {
        if depth > Graph::MAX_NESTING {
            return self.error(self.at, format!("regions nest more than {} deep", Graph::MAX_NESTING));
        }
        self.regions += 1;
        let outer = std::mem::replace(&mut self.region, self.regions);
        self.expect("(")?;
        let params = self.list(")", |p| p.param())?;
        self.expect("{")?;
        let mut nodes = vec![];
        while !self.eat("yield")? {
            match self.token {
                Token::Word(_) | Token::Value(_) => nodes.push(self.node(depth)?),
                _ => return self.expected("a node (%value = …) or 'yield'"),
            }
        }
        let results = self.list("}", |p| p.value())?;
        self.region = outer;
        Ok(Region { params, nodes, results })
    }

    /// `%name: type`, a new value.
    fn param(&mut self) -> Parsed<ValueId> {
        let at = self.at;
        let Token::Value(name) = self.token else { return self.expected("the value's name, such as %0") };
        self.advance()?;
        self.expect(":")?;
        let ty = self.ty()?;
        self.define(name, at, ty, Def::Param)
    }

    fn define(&mut self, name: &'t str, at: usize, ty: Type, def: Def) -> Parsed<ValueId> {
        if !ty.is_addressable() {
            let ty = print::ty(&ty);
            return self
                .error(at, format!("{ty} has more elements than memory can address; use smaller sizes"));
        }
        let value = self.graph.add_value(ty, def);
        match self.values.insert(name, (value, self.region)) {
            None => Ok(value),
            Some(_) => self.error(at, format!("%{} is defined twice; choose another name", brief(name))),
        }
    }

    /// The use of a value that this region defined before.
    fn value(&mut self) -> Parsed<ValueId> {
        let Token::Value(name) = self.token else { return self.expected("a value, such as %0") };
        match self.values.get(name) {
            Some(&(value, region)) if region == self.region => self.advance().map(|_| value),
            Some(_) => {
                let help = "pass it as an operand and use the region's parameter";
                self.error(self.at, format!("%{} belongs to another region; {help}", brief(name)))
            }
            None => {
                let named =
                    self.values.keys().copied().filter(|n| n.starts_with(|c: char| !c.is_ascii_digit()));
                let near = hint(name, named);
                self.error(self.at, format!("%{} is not defined above{near}", brief(name)))
            }
        }
    }
}
