"""Small Markdown bodies of our own, several for every block construct."""

from __future__ import annotations

# Inputs separated by lines of `%%`, one group a construct; `→` is a tab,
# `·` a space.
CASES = {
    "atx headings": """# One
%%
###### Six ##
%%
####### Seven is text
%%
#No space
%%
#→Tab after the mark
%%
   ## Indented three
%%
    ## Indented four
%%
text
# Interrupts
text
%%
#
%%
## ##
%%
# closing \\#
%%
# closing# here#
%%
# spaces   #####   \t
%%
\\# escaped
%%
# `code # span` #""",
    "setext headings": """Title
===
%%
Title
---
%%
Three
lines of
title
   ======   \t
%%
Title
    ===
%%
Title
= =
%%

===
%%
> quoted
===
%%
- item
---
%%
- item
  ===
%%
Title
--
- x
%%
    code
---
%%
[a]: /only
===
%%
[a]: /first
then text
===
%%
# atx
===
%%
Title
===
===
%%
    Title
 ===""",
    "thematic breaks": """---
***
___
%%
- - -
%%
 *  *  *  \t
%%
--
%%
*-*
%%
    ***
%%
text
***
text
%%
- a
***
- b
%%
- a
- * * *
%%
* * * a
%%
_ _ _ _ x""",
    "fences": """```
# not a heading
```
%%
~~~ python
- not a list
~~~
# heading
%%
````
```
`````
%%
```
unclosed
# still code

end

%%
``` a`b
# heading
%%
~~~ a`b~
# code
~~~
%%
``
# heading
``
%%
  ```
    # code
 ```
# heading
%%
```
    ```
# code
``` x
# code
```
%%
> ```
> # code
# heading
%%
- ```
  # code

  # code
# heading
%%
text
```
# code
```
text
%%
~~~
```
~~~
# heading""",
    "indented code": """    # code

      more

text
%%
text
    # still text
%%
→# code
%%
- a

      # code in the item
%%
-     # code
%%
-→→# code
%%
>     # code
>
>     more
%%
>→→# code
%%
    a

# heading
%%
  → # code""",
    "html": """<div>
# text

# heading
%%
<DIV class="x"
# text
%%
</div>
# text
%%
<script>
# text

# text</script># same line
# heading
%%
<pre># a

# b
</STYLE>
# heading
%%
<!-- one line --> # text
# heading
%%
<!-- open
# text

# text
--> tail
# heading
%%
<!-->
# heading
%%
<? php

# text ?>
# heading
%%
<!DOCTYPE html>
# heading
%%
<![CDATA[
# text
]]>
# heading
%%
<custom-tag attr='1' b=c d>
# text
%%
<custom-tag attr='1' b=c d> text
# heading
%%
text
<custom>
# heading
%%
text
<div>
# text
%%
<a href="x>
# heading
%%
</custom >
# text
%%
<custom/>
# text
%%
<custom =x>
# heading
%%
<1a>
# heading
%%
<table><tr>
# text

</tr></table>
%%
<pre
# text</pre>
# heading
%%
    <div>
# heading
%%
<search>
# text
%%
<h1/>
# text
%%
<h7/>x
# heading""",
    "link reference definitions": """[a]: /url
# heading
%%
[a]: /url "title"
[b]: <u r l> 'title'
text
%%
[a]:
  /url
  (title)
%%
[a
b]: /url
text
%%
[a]: /url "two
lines"
text
%%
[a]: /url "title" more
===
%%
[a]: /url
"title" more
%%
[a]: /url
"title never closed
===
text
%%
[a]: /url

"title"
%%
[]: /url
%%
[ ]: /url
%%
[a] : /url
%%
[a\\]b]: /url
%%
[a[b]: /url
%%
[a]: <>
%%
[a]: <u<r>
%%
[a]: (x(y)z)
%%
[a]: (x
%%
text
[a]: /url
===
%%
> [a]: /url
lazy?
%%
- [a]: /url
lazy?
%%
[a]: /url
    code
%%
[a]: /url
2. two
%%
[a]: /url
<b>
%%
[a]:
===
%%
[a
===
b]
%%
[a
---
b]: /url
%%
[a]: /url 'it\\'s'
[b]: /url (x (y))
%%
[a]: /url
[b
# heading""",
    "block quotes": """> # heading
> text
# heading
%%
># heading
%%
> text
lazy
# heading
%%
> text
    lazy
%%
> - item
lazy
%%
> text

> other
%%
>
%%
>
>
> text
>
%%
> > # deep
> # less
%%
>>> text
> lazy
lazy
%%
    > code
%%
text
> quote
%%
> ```
code?
```
%%
>→# tab
%%
> text
***
%%
> - a
>   ## in item
> - b
%%
  >  > - 1. ### four
%%
> text
===""",
    "lists": """- a
- b
- c
%%
- a
* b
+ c
%%
1. a
2. b
2) c
%%
- a

- b


text
%%
-
- b
%%
-
  text
%%
-

  text
%%
- # heading
  ## second

  ### third
%%
1234567890. text
%%
123456789. # heading
%%
-text
%%
1.text
%%
text
- interrupts
%%
text
1. interrupts
%%
text
2. does not
%%
text
-
%%
text
*
more
%%
text
01. zero one
%%
- a
 - b
  - c
   - d
    - e
%%
- a
  - b
    - c
      # deep
%%
- a

  b

      code

c
%%
10. a
   # not in it
%%
10. a
    # in it
%%
-→a

→# in it
%%
 -→# heading
→→code
%%
- a
> b
- c
%%
- a
lazy
- b
%%
- a
      lazy
%%
- - - a
%%
- 1. - # h
%%
*→*→*→
%%
- a
  ***
  b
%%
- a

# heading
- b
%%
- a
    - b
        - c

        # in c
%%
1. a

   ```
   # code
   ```
2. b
%%
*   a
+   b
%%
-···
    # text
%%
- [a]: /url
- b
%%
- a
-
- c
%%
- a
- ```
  b


  ```
- c""",
    "tables": """| a | b |
|---|---|
| 1 | 2 |

text
%%
a | b
--|:-:
1 | 2
# heading
%%
| a | b |
|---|
| 1 | 2 |
%%
| a \\| b | c |
|---|---|
%%
text
| a |
|---|
| b
text
%%
| a |
| - |
> quote
%%
| a |
|:--|
- item
%%
| a |
|--:|
2. item
%%
| a |
|---|
<b>
<div>
%%
| a |
|---|
    code
%%
    | a |
|---|
%%
| a |
    |---|
%%
> | a |
> |---|
> | b |
lazy?
%%
- text

  | a | b |
  |---|---|
  | # | - |
%%
a |
---
%%
|
|-
%%
||
|-|
%%
| a | b |
| - || - |
%%
| a |
|-x-|
%%
a | b
- | -
%%
| a |
|---|
```
# code
```
%%
[a]: /url
| a |
|---|
%%
| a
| ---
***
%%
| a | b | c
|---|---|---|
| 1

| a |""",
    "texts": """one

two


three
%%

···
\t
text   \t

%%
é
===
日本語
---
# 中文 #
%%
\x0b# no
%%
\x00# no
%%
# a\x00b
%%
a\x0c
===""",
}
BODIES = [
    (construct, body.replace("→", "\t").replace("·", " ").encode())
    for construct, group in CASES.items()
    for body in group.split("\n%%\n")
]
