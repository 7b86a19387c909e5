//! What a caller may give for inputs: arrays in order, or arrays by name.

use crate::Error;
use onestep_ir::{Array, Graph, GraphError};

/// Inputs of a call: an array or slice of [`Array`]s in the program's order, or pairs of name and array.
pub trait Feeds {
    /// Calls `f` for each input, with its name if the caller gave names.
    fn each<'a>(&'a self, f: &mut dyn FnMut(Option<&'a str>, &'a Array));
}

impl Feeds for [Array] {
    fn each<'a>(&'a self, f: &mut dyn FnMut(Option<&'a str>, &'a Array)) {
        self.iter().for_each(|a| f(None, a));
    }
}
impl<const N: usize> Feeds for [Array; N] {
    fn each<'a>(&'a self, f: &mut dyn FnMut(Option<&'a str>, &'a Array)) {
        self.iter().for_each(|a| f(None, a));
    }
}
impl<const N: usize> Feeds for [&Array; N] {
    fn each<'a>(&'a self, f: &mut dyn FnMut(Option<&'a str>, &'a Array)) {
        self.iter().for_each(|a| f(None, a));
    }
}
impl Feeds for Vec<Array> {
    fn each<'a>(&'a self, f: &mut dyn FnMut(Option<&'a str>, &'a Array)) {
        self.iter().for_each(|a| f(None, a));
    }
}
impl<const N: usize> Feeds for [(&str, Array); N] {
    fn each<'a>(&'a self, f: &mut dyn FnMut(Option<&'a str>, &'a Array)) {
        self.iter().for_each(|(n, a)| f(Some(n), a));
    }
}
impl<const N: usize> Feeds for [(&str, &Array); N] {
    fn each<'a>(&'a self, f: &mut dyn FnMut(Option<&'a str>, &'a Array)) {
        self.iter().for_each(|(n, a)| f(Some(n), a));
    }
}
impl Feeds for [(&str, &Array)] {
    fn each<'a>(&'a self, f: &mut dyn FnMut(Option<&'a str>, &'a Array)) {
        self.iter().for_each(|(n, a)| f(Some(n), a));
    }
}
impl Feeds for () {
    fn each<'a>(&'a self, _: &mut dyn FnMut(Option<&'a str>, &'a Array)) {}
}
impl<T: Feeds + ?Sized> Feeds for &T {
    fn each<'a>(&'a self, f: &mut dyn FnMut(Option<&'a str>, &'a Array)) {
        (**self).each(f);
    }
}

/// The first input of a graph that no feed names, as an error.
pub(crate) fn missing(graph: &Graph, feeds: &(impl Feeds + ?Sized)) -> Option<Error> {
    let absent = graph.inputs.iter().find(|port| {
        let mut given = false;
        feeds.each(&mut |name, _| given |= name == Some(&*port.name));
        !given
    })?;
    let ty = Box::new(graph.ty(absent.value).clone());
    Some(GraphError::MissingInput { name: absent.name.to_string(), ty, nearest: None }.into())
}
