# A day's work on the repository in the current directory, whose branch `trunk` has one commit.
set -euo pipefail

commit() { echo "$2" >>"$1" && git add "$1" && git commit -q -m "$2"; }

git switch -q -c feature
commit feature.txt one
commit feature.txt two
git switch -q trunk
commit trunk.txt three
git merge -q --no-edit feature

git switch -q -c topic HEAD~1
commit topic.txt four
echo unfinished >>topic.txt
git stash -q
git rebase -q trunk
git stash pop -q
git diff --quiet && exit 1
git commit -q -a --amend --no-edit

# A conflict, and its resolution.
git switch -q -c other trunk
commit topic.txt five
git merge topic >/dev/null && exit 1
git checkout --theirs topic.txt 2>/dev/null
git commit -q -a -m merged

git tag -a -m release v1
git worktree add -q ../worktree topic
(cd ../worktree && commit topic.txt six)
git worktree remove ../worktree
git clone -q . ../clone
(cd ../clone && commit clone.txt seven && git push -q origin HEAD:refs/heads/pushed)
git bundle create -q ../all.bundle --all
git gc -q
git fsck --strict --no-dangling
git reset -q --hard
git clean -qfdx
git status --porcelain
git log --format=%s other | sort
git show pushed:clone.txt topic:topic.txt
git describe --abbrev=0 other
